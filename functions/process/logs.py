"""How every process logs: one line per fact, with the ids at hand, and no secret in it."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Any
from urllib.parse import unquote, urlsplit

import structlog
from pydantic import SecretStr
from structlog.stdlib import ExtraAdder, ProcessorFormatter
from structlog.tracebacks import ExceptionDictTransformer
from structlog.typing import EventDict, Processor, WrappedLogger

from state.settings import Settings

HIDDEN = "[redacted]"
SHORTEST_SECRET = 6
"""Shorter values are not looked for: they would be found everywhere."""
EXTRA = ("method", "route", "status", "duration_s", "refused", "experiment_id", "gpu_id", "invocation_id")
"""What a line may carry through `extra=`, beside the ids that are bound around it."""

_SECRET_NAME = re.compile(
    r"(?i)(^|[_-])(password|passwd|secret|token|authorization|api[_-]?key|private[_-]?key|signature|cookie|credentials?)$"
)
_SECRET_TEXT = re.compile(
    r"""(?x)
    (?<=://) [^/\s@]+ (?=@)                                     # a URL's user and password
    | (?<=\bBearer[ ]) \S+ | (?<=\bBasic[ ]) [A-Za-z0-9+/=]{8,} # an Authorization header
    | \bwhsec_[A-Za-z0-9+/=_-]+                                 # a webhook's secret
    | \bsk-[A-Za-z0-9_-]{16,}                                   # a model provider's key
    """
)
_TOKEN = re.compile(r"(?<![A-Za-z0-9])nj_[a-z2-7]{10}_[A-Za-z0-9_-]+")
_ASSIGNED = re.compile(
    r"""(?i)\b((?:[a-z0-9]+[_-])*(?:password|passwd|secret|token|api[_-]?key)["']?\s*[:=]\s*["']?)[^\s"',;)}\]]+"""
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

_known: set[str] = set()


def start_logging(settings: Settings, kind: str) -> None:
    """Log to standard error as the settings ask: lines for people, or one JSON object each for machines.

    `kind` is the process's: web, events, clock, supervisor, keeper, worker, runner, up.
    """
    hide(*_secrets_of(settings), *_secrets_in(os.environ))
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(settings.log_format, kind, colors=sys.stderr.isatty()))
    logging.basicConfig(level=settings.log_level, handlers=[handler], force=True)
    for talkative in ("apscheduler", "httpx", "httpcore"):
        logging.getLogger(talkative).setLevel("WARNING")
    sys.excepthook = _uncaught


def formatter(log_format: str, kind: str, *, colors: bool = False) -> logging.Formatter:
    """What turns a record of any library into our line."""

    def whose(_: WrappedLogger, __: str, line: EventDict) -> EventDict:
        return {"process": kind, "pid": os.getpid(), **line}

    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        ExtraAdder(allow=EXTRA),
        whose,
    ]
    if log_format == "json":
        shown: list[Processor] = [
            structlog.processors.ExceptionRenderer(ExceptionDictTransformer(show_locals=False)),
            redact,
            structlog.processors.JSONRenderer(default=str),
        ]
    else:
        shown = [
            structlog.processors.format_exc_info,
            redact,
            _one_line,
            structlog.dev.ConsoleRenderer(
                colors=colors,
                timestamp_key="time",
                event_key="message",
                pad_event_to=0,
                exception_formatter=structlog.dev.plain_traceback,
            ),
        ]
    return ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            ProcessorFormatter.remove_processors_meta,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            structlog.processors.EventRenamer("message"),
            *shown,
        ],
    )


def hide(*secrets: str) -> None:
    """Never log these values; of a URL its password is hidden too."""
    for secret in secrets:
        found = {secret}
        if "://" in secret:
            password = urlsplit(secret).password or ""
            found |= {password, unquote(password)}
        _known.update(text for text in found if len(text) >= SHORTEST_SECRET)


def redact(_: WrappedLogger, __: str, line: EventDict) -> EventDict:
    """Hide what must not be read, by the name it stands under and by what it is."""
    return {name: _redacted(name, value) for name, value in line.items()}


def scrubbed(text: str) -> str:
    """Text without any secret that we know, or know the look of, or that stands behind a secret's name."""
    return _ASSIGNED.sub(rf"\1{HIDDEN}", presentable(text))


def presentable(text: str) -> str:
    """Text of our own, which may speak of passwords and tokens, without any that we know or know the look of."""
    for secret in sorted(_known, key=len, reverse=True):
        if secret in text:
            text = text.replace(secret, HIDDEN)
    return _SECRET_TEXT.sub(HIDDEN, without_tokens(text))


def without_tokens(text: str) -> str:
    """Text in which no token of ours can be read."""
    return _TOKEN.sub(HIDDEN, text)


def _redacted(name: str, value: Any) -> Any:
    if _SECRET_NAME.search(name):
        return HIDDEN
    match value:
        case str():
            return scrubbed(value)
        case Mapping():
            return {key: _redacted(str(key), inner) for key, inner in value.items()}
        case list() | tuple():
            return [_redacted(name, inner) for inner in value]
        case bool() | int() | float() | None:
            return value
        case _:
            return scrubbed(str(value))


def _one_line(_: WrappedLogger, __: str, line: EventDict) -> EventDict:
    """Text of others cannot pretend to be a line of its own."""
    escaped = _CONTROL.sub(lambda found: repr(found[0])[1:-1], str(line.get("message", "")))
    return {**line, "message": escaped}


def _secrets_of(settings: Settings) -> list[str]:
    values = (getattr(settings, name) for name in type(settings).model_fields)
    return [value.get_secret_value() for value in values if isinstance(value, SecretStr)]


def _secrets_in(environ: Mapping[str, str]) -> list[str]:
    """Keys and tokens of other programs, whose errors may quote them."""
    return [value for name, value in environ.items() if _SECRET_NAME.search(name) and len(value) >= 8]


def _uncaught(kind: type[BaseException], problem: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, problem, trace)
        return
    logging.getLogger(__name__).critical("ends by a fault of its own", exc_info=(kind, problem, trace))
