"""Request bodies: read up to a limit, parsed as JSON, checked for what JSON cannot hold."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from pydantic_core import from_json
from starlette.requests import Request

from state.errors import Invalid, Malformed, TooLarge, UnsupportedMedia

PARSED = frozenset({"", "application/json", "text/plain", "application/x-www-form-urlencoded"})
"""Content types read as JSON: the last one is what `curl -d` sends."""


async def read_json(request: Request, limit: int) -> dict[str, Any]:
    """The body's JSON object; an empty body is an empty object.

    Raises:
        TooLarge, UnsupportedMedia, Malformed (no JSON), Invalid (no object, NaN or infinity).
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in PARSED:
        raise UnsupportedMedia(
            f"a body of type {kind[:100]!r} is not read here", hint="send JSON: content-type application/json"
        )
    if encoding := request.headers.get("content-encoding", ""):
        raise UnsupportedMedia(
            f"a body encoded as {encoding[:100]!r} is not read here", hint="send it uncompressed"
        )
    body = await _read(request, limit)
    if not body.strip():
        return {}
    try:
        parsed = from_json(body, allow_inf_nan=True)
    except ValueError as problem:
        raise Malformed(
            f"the body is no JSON: {str(problem)[:200]}", hint='send an object such as {"tag": "mar11"}'
        ) from problem
    if not isinstance(parsed, dict):
        raise Invalid("the body is JSON, but no object", hint='send an object such as {"tag": "mar11"}')
    if place := not_finite(parsed):
        raise Invalid(
            f"{place} is not a finite number",
            hint="NaN and infinity are no results: report a run that has none with POST /api/experiment/crash",
            fields={"errors": [{"field": place, "problem": "not a finite number"}]},
        )
    if b"\\u0000" in body and (place := with_nul(parsed)):
        raise Invalid(
            f"{place} holds a NUL character",
            hint="no text, path or commit has one: leave it out",
            fields={"errors": [{"field": place, "problem": "holds a NUL character"}]},
        )
    return parsed


def with_nul(value: Any, place: str = "") -> str | None:
    """Where a NUL character stands; None where nowhere."""
    if isinstance(value, str):
        return (place or "body") if "\0" in value else None
    if isinstance(value, dict) and any("\0" in name for name in value):
        return f"a name in {place or 'the body'}"
    return _first(value, place, with_nul)


def not_finite(value: Any, place: str = "") -> str | None:
    """Where NaN or infinity stands; None where nowhere."""
    if isinstance(value, float):
        return (place or "body") if not math.isfinite(value) else None
    return _first(value, place, not_finite)


def _first(value: Any, place: str, look: Callable[[Any, str], str | None]) -> str | None:
    if isinstance(value, dict):
        inner = ((f"{place}.{name[:100]}" if place else name[:100], v) for name, v in value.items())
    elif isinstance(value, list):
        inner = ((f"{place}[{i}]", v) for i, v in enumerate(value))
    else:
        return None
    return next((found for where, v in inner if (found := look(v, where))), None)


async def _read(request: Request, limit: int) -> bytes:
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > limit:
        raise _too_large(limit)
    parts: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        parts.append(chunk)
    return b"".join(parts)


def _too_large(limit: int) -> TooLarge:
    return TooLarge(
        f"the body is over {limit / 1024 / 1024:g} MiB",
        hint="send less: keep data, checkpoints and binaries out of the diff",
    )
