"""Request bodies: read up to a limit and in time, parsed as JSON, checked for what no request may hold."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json
from starlette.requests import Request

from functions.rules.keeps.verdict import NO_VALUE
from state.errors import Invalid, Malformed, TooLarge, TooSlow, UnsupportedMedia

PARSED = frozenset({"", "application/json", "text/plain", "application/x-www-form-urlencoded"})
"""Content types read as JSON: the last one is what `curl -d` sends."""
BODY_S = 30.0
"""Seconds for a whole body: who sends slower holds a connection, and a request of ours, for nothing."""
DEPTH_MOST = 32
ENTRIES_MOST = 10_000
"""Of one list or object."""
VALUES_MOST = 100_000
"""Of a whole body."""
NOT_FINITE = "is not a finite number"
HOLDS_NUL = "holds a NUL character"
TOO_DEEP = f"is nested more than {DEPTH_MOST} levels deep"
RESULT = "val_bpb"
NO_RESULT = f"NaN and infinity are no results: {NO_VALUE}"
HINTS = {
    NOT_FINITE: "numbers have to be finite: send one that is, or leave the field out",
    HOLDS_NUL: "no text, path or commit has one: leave it out",
}


async def read_json(request: Request, limit: int) -> dict[str, Any]:
    """The body's JSON object.

    Raises:
        As `read_body` and `parsed`.
    """
    return parsed(await read_body(request, limit))


async def read_body(request: Request, limit: int) -> bytes:
    """The body, as it was sent.

    Raises:
        TooLarge, TooSlow, UnsupportedMedia.
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
    try:
        async with asyncio.timeout(BODY_S):
            return await _read(request, limit)
    except TimeoutError as problem:
        raise TooSlow(
            f"the body did not arrive within {BODY_S:g} seconds",
            hint="send it in one go, then repeat the request",
        ) from problem


def parsed(body: bytes) -> dict[str, Any]:
    """The JSON object of a body; an empty body is an empty object.

    Raises:
        Malformed (no JSON), Invalid (no object, or it holds NaN, infinity or a NUL character, or is too deep or too
            long).
    """
    if not body.strip():
        return {}
    if _has_too_many_values(body):
        raise refusal(Fault(f"is past the first {VALUES_MOST} values"))
    try:
        value = from_json(body, allow_inf_nan=True)
    except ValueError as problem:
        if "recursion limit" in str(problem):
            raise refusal(Fault(TOO_DEEP)) from problem
        raise Malformed(
            f"the body is no JSON: {str(problem)[:200]}", hint='send an object such as {"tag": "mar11"}'
        ) from problem
    if not isinstance(value, dict):
        raise Invalid("the body is JSON, but no object", hint='send an object such as {"tag": "mar11"}')
    if found := Look().fault(value):
        raise refusal(found)
    return value


@dataclass(frozen=True)
class Fault:
    """What of a body is refused, and where it stands."""

    what: str
    path: tuple[str, ...] = ()

    def within(self, part: str) -> Fault:
        return Fault(self.what, (part, *self.path))

    @property
    def place(self) -> str:
        """Such as `policy.limits[3]`; the innermost of a very long one."""
        text = "".join(self.path).removeprefix(".")
        return text if len(text) <= 300 else f"...{text[-300:]}"


def refusal(fault: Fault) -> Invalid:
    """A fault as an error."""
    place = fault.place or "body"
    hint = HINTS.get(fault.what, "no request needs that much: send text of your own as one string")
    return Invalid(
        f"{place} {fault.what}",
        hint=NO_RESULT if fault == Fault(NOT_FINITE, (f".{RESULT}",)) else hint,
        fields={"errors": [{"field": place, "problem": fault.what}]},
    )


class Look:
    """One walk over what was parsed; its time grows with the number of values, wherever they stand."""

    def __init__(self) -> None:
        self._values = 0

    def fault(self, value: Any, levels: int = DEPTH_MOST) -> Fault | None:
        """The first thing that is refused."""
        match value:
            case float() if not math.isfinite(value):
                return Fault(NOT_FINITE)
            case str() if "\0" in value:
                return Fault(HOLDS_NUL)
            case dict() | list():
                self._values += len(value)
                if levels == 0:
                    return Fault(TOO_DEEP)
                if len(value) > ENTRIES_MOST:
                    return Fault(f"has {len(value)} entries, over {ENTRIES_MOST}")
                if self._values > VALUES_MOST:
                    return Fault(f"is past the first {VALUES_MOST} values")
                return self._inside(value, levels - 1)
            case _:
                return None

    def _inside(self, value: dict[str, Any] | list[Any], levels: int) -> Fault | None:
        if isinstance(value, list):
            for nth, inner in enumerate(value):
                if found := self.fault(inner, levels):
                    return found.within(f"[{nth}]")
            return None
        for name, inner in value.items():
            if found := Fault(HOLDS_NUL) if "\0" in name else self.fault(inner, levels):
                return found.within("." + name[:100].replace("\0", "\\0"))
        return None


def _has_too_many_values(body: bytes) -> bool:
    """Whether the commas outside of texts part more values than a body may have.

    Counting them takes some milliseconds; to parse millions of values would hold the event loop for long.
    """
    if body.count(b",") <= VALUES_MOST:
        return False
    unescaped = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if unescaped.count(b'"') > 4 * VALUES_MOST + 2:  # a name and a text for each value
        return True
    return sum(part.count(b",") for part in unescaped.split(b'"')[::2]) > VALUES_MOST


async def _read(request: Request, limit: int) -> bytes:
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > limit:
        raise too_large(limit)
    parts: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise too_large(limit)
        parts.append(chunk)
    return b"".join(parts)


def too_large(limit: int) -> TooLarge:
    """The refusal of a body over this many bytes."""
    return TooLarge(
        f"the body is over {limit / 1024 / 1024:g} MiB",
        hint="send less: keep data, checkpoints and binaries out of the diff",
    )
