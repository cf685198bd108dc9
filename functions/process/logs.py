"""How every process logs: one line per fact, with the ids at hand, and no secret in it."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from pydantic import SecretStr

from functions.process.context import bound_facts
from functions.process.redaction import hide, redacted, secrets_in
from state.settings import Settings

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor, WrappedLogger

EXTRA = ("method", "route", "status", "duration_s", "refused", "experiment_id", "gpu_id", "invocation_id")
"""What a line may carry through `extra=`, beside the facts that are bound around it."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def start_logging(settings: Settings, kind: str) -> None:
    """Log to standard error as the settings ask: lines for people, or one JSON object each for machines.

    `kind` is the process's: web, events, clock, supervisor, keeper, worker, runner, up.
    """
    hide(*_secrets_of(settings), *secrets_in(os.environ))
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(settings.log_format, kind, colors=sys.stderr.isatty()))
    logging.basicConfig(level=settings.log_level, handlers=[handler], force=True)
    for talkative in ("apscheduler", "httpx", "httpcore"):
        logging.getLogger(talkative).setLevel("WARNING")
    sys.excepthook = _uncaught


def formatter(log_format: str, kind: str, *, colors: bool = False) -> logging.Formatter:
    """What turns a record of any library into our line."""
    with _without_rich():
        import structlog

    def named(_: WrappedLogger, __: str, line: EventDict) -> EventDict:
        return {"process": kind, "pid": os.getpid(), **bound_facts(), **line}

    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(allow=EXTRA),
        named,
    ]
    if log_format == "json":
        transformer = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        shown: list[Processor] = [
            structlog.processors.ExceptionRenderer(transformer),
            _redact,
            structlog.processors.JSONRenderer(default=str),
        ]
    else:
        shown = [
            structlog.processors.format_exc_info,
            _redact,
            _one_line,
            structlog.dev.ConsoleRenderer(
                colors=colors,
                timestamp_key="time",
                event_key="message",
                pad_event_to=0,
                exception_formatter=structlog.dev.plain_traceback,
            ),
        ]
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            structlog.processors.EventRenamer("message"),
            *shown,
        ],
    )


@contextmanager
def _without_rich() -> Iterator[None]:
    """Let no import within find rich: structlog would only use it to show tracebacks in colours, and every process
    would start a tenth of a second later.
    """
    if "rich" in sys.modules:
        yield
        return
    sys.modules["rich"] = None  # type: ignore[assignment]  # Python's sign for what cannot be imported
    try:
        yield
    finally:
        del sys.modules["rich"]


def _redact(_: WrappedLogger, __: str, line: EventDict) -> EventDict:
    """Hide what must not be read, by the name it stands under and by what it is."""
    return {name: redacted(name, value) for name, value in line.items()}


def _one_line(_: WrappedLogger, __: str, line: EventDict) -> EventDict:
    """Foreign text cannot pose as a separate log line."""
    escaped = _CONTROL.sub(lambda found: repr(found[0])[1:-1], str(line.get("message", "")))
    return {**line, "message": escaped}


def _secrets_of(settings: Settings) -> list[str]:
    values = (getattr(settings, name) for name in type(settings).model_fields)
    return [value.get_secret_value() for value in values if isinstance(value, SecretStr)]


def _uncaught(kind: type[BaseException], problem: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, problem, trace)
        return
    logging.getLogger(__name__).critical("ends by a fault of its own", exc_info=(kind, problem, trace))
