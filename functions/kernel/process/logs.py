"""Logging of every process: one line per event, with ids, and without secrets."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType, TracebackType
from typing import Any

from pydantic import SecretStr

from functions.kernel.process.redaction import hide, redacted, scrubbed, secrets_in
from state import traceparent
from state.settings import Settings

EXTRA = ("method", "route", "status", "duration_s", "refused", "experiment_id", "gpu_id", "invocation_id")
"""Facts that a logging call may add by `extra=`."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_WORD = re.compile(r"[^\s\"'=\x00-\x1f\x7f]+")
_COLORS = {"DEBUG": 2, "INFO": 32, "WARNING": 33, "ERROR": 31, "CRITICAL": 41}
"""ANSI codes."""


_bound: ContextVar[Mapping[str, object]] = ContextVar("bound", default=MappingProxyType({}))


class bound:
    """Add these facts to the lines that are logged within; the block may add more to the dict that it gets."""

    def __init__(self, **facts: object) -> None:
        self._facts = facts

    def __enter__(self) -> dict[str, object]:
        facts = {**_bound.get(), **self._facts}
        self._before = _bound.set(facts)
        return facts

    def __exit__(self, *_: object) -> None:
        _bound.reset(self._before)


def start_logging(settings: Settings, kind: str) -> None:
    """Log to standard error: lines for people, or JSON. `kind` is the process's, such as web, clock, keeper."""
    hide(*_secrets_of(settings), *secrets_in(os.environ))
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(settings.log_format, kind, colors=sys.stderr.isatty()))
    logging.basicConfig(level=settings.log_level, handlers=[handler], force=True)
    # No line shows these, and finding them takes a third of its time: "Optimization" in Python's logging HOWTO.
    logging._srcfile = None  # pyright: ignore[reportPrivateUsage]
    logging.logThreads = logging.logMultiprocessing = False
    for talkative in (
        "apscheduler",
        "httpx",
        "httpcore",
        "mcp",
        "httpx2",
        "httpcore2",
        "anthropic",
        "openai",
        "google_genai",
    ):
        logging.getLogger(talkative).setLevel("WARNING")
    sys.excepthook = _uncaught


def formatter(log_format: str, kind: str, *, colors: bool = False) -> logging.Formatter:
    """The formatter of all lines, of libraries too."""
    return _Json(kind) if log_format == "json" else _Text(kind, colors=colors)


class _Line(logging.Formatter):
    """The parts of a line, without secrets."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._kind = kind

    def time(self, record: logging.LogRecord) -> str:
        """Such as 2026-03-11T08:15:00.123456Z."""
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds")[:-6] + "Z"

    def facts(self, record: logging.LogRecord) -> dict[str, Any]:
        """The process, what is bound, and what the call of the logger added."""
        known = record.__dict__
        added = {name: known[name] for name in EXTRA if name in known}
        facts = {"process": self._kind, "pid": record.process, **_bound.get(), **added}
        if trace := traceparent.current.get():
            facts["trace_id"] = traceparent.trace_id(trace)
        return {name: redacted(name, value) for name, value in facts.items()}


class _Json(_Line):
    """One JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        line = self.facts(record) | {
            "time": self.time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": scrubbed(record.getMessage()),
        }
        if record.exc_info and record.exc_info[1]:
            line["exception"] = redacted("exception", list(_exceptions(record.exc_info[1])))
        return json.dumps(line, default=str)


class _Text(_Line):
    """`time [level] message [logger] name=value ...`; a traceback follows."""

    def __init__(self, kind: str, *, colors: bool) -> None:
        super().__init__(kind)
        self._colors = _COLORS if colors else {}

    def format(self, record: logging.LogRecord) -> str:
        level = f"{record.levelname.lower():<9}"
        if color := self._colors.get(record.levelname):
            level = f"\x1b[{color}m{level}\x1b[0m"
        facts = sorted(self.facts(record).items())
        shown = " ".join(f"{name}={_plain(value)}" for name, value in facts)
        message = _escaped(scrubbed(record.getMessage()))
        line = f"{self.time(record)} [{level}] {message} [{record.name}] {shown}"
        if record.exc_info and record.exc_info[1]:
            line += "\n" + scrubbed(self.formatException(record.exc_info))
        return line


def _exceptions(problem: BaseException | None) -> Iterator[dict[str, Any]]:
    """An exception by its frames, without their variables; then the one that it came from."""
    while problem is not None:
        frames = traceback.extract_tb(problem.__traceback__)
        yield {
            "exc_type": type(problem).__name__,
            "exc_value": str(problem),
            "frames": [{"filename": f.filename, "lineno": f.lineno, "name": f.name} for f in frames],
        }
        problem = problem.__cause__ or (None if problem.__suppress_context__ else problem.__context__)


def _plain(value: object) -> str:
    """The value, in quotes if it could be read as several."""
    return value if isinstance(value, str) and _WORD.fullmatch(value) else repr(value)


def _escaped(text: str) -> str:
    """Text without control characters, so that it cannot look like a separate line."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def _secrets_of(settings: Settings) -> list[str]:
    values = (getattr(settings, name) for name in type(settings).model_fields)
    return [value.get_secret_value() for value in values if isinstance(value, SecretStr)]


def _uncaught(kind: type[BaseException], problem: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, problem, trace)
        return
    logging.getLogger(__name__).critical("ends by a fault of its own", exc_info=(kind, problem, trace))
