"""Hides secrets in logs, answers and terminal output: known ones, and text that looks like one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import unquote, urlsplit

from functions.kernel.rules.credentials import CREDENTIAL_TEXT, NIGHTJAR_TOKEN

HIDDEN = "[redacted]"
SHORTEST_SECRET = 6
"""Shorter values are not hidden: they would be found everywhere."""

_SECRET_NAME = re.compile(
    r"(?i)(^|[_-])(password|passwd|secret|token|authorization|api[_-]?key|private[_-]?key|signature|cookie|credentials?)$"
)
_ASSIGNED = re.compile(
    r"""(?i)(?<![a-z0-9])((?:password|passwd|secret|token|api[_-]?key)["']?\s*[:=]\s*["']?)[^\s"',;)}\]]+"""
)

_MARK = re.compile(r"[=:]|nj_|sk-|AIza|whsec_|Bearer |Basic ")
"""Every text with a match of these patterns contains this mark, which is found much faster."""

_known: set[str] = set()


def hide(*secrets: str) -> None:
    """Never show these values; of a URL its password is hidden too."""
    for secret in secrets:
        found = {secret}
        if "://" in secret:
            password = urlsplit(secret).password or ""
            found |= {password, unquote(password)}
        _known.update(text for text in found if len(text) >= SHORTEST_SECRET)


def redacted(name: str, value: Any) -> Any:
    """A value without secrets. It is hidden whole if its name is that of a secret."""
    if _is_secret(name):
        return HIDDEN
    match value:
        case str():
            return scrubbed(value)
        case Mapping():
            return {key: redacted(str(key), inner) for key, inner in value.items()}
        case list() | tuple():
            return [redacted(name, inner) for inner in value]
        case bool() | int() | float() | None:
            return value
        case _:
            return scrubbed(str(value))


@lru_cache(1024)
def _is_secret(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None


def scrubbed(text: str) -> str:
    """Text without known secrets, text that looks like one, and values that follow a secret's name."""
    if _MARK.search(text) or any(secret in text for secret in _known):
        return _ASSIGNED.sub(rf"\1{HIDDEN}", presentable(text))
    return text


def presentable(text: str) -> str:
    """Nightjar's own text without known secrets and text that looks like one. It may use words such as password."""
    for secret in sorted(_known, key=len, reverse=True):
        if secret in text:
            text = text.replace(secret, HIDDEN)
    return CREDENTIAL_TEXT.sub(HIDDEN, without_tokens(text))


def without_tokens(text: str) -> str:
    return NIGHTJAR_TOKEN.sub(HIDDEN, text)


def secrets_in(environ: Mapping[str, str]) -> list[str]:
    """Keys and tokens of other programs, which their errors may quote."""
    return [value for name, value in environ.items() if _SECRET_NAME.search(name) and len(value) >= 8]
