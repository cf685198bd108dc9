"""The request model of a function, from the body, path and query of an HTTP request: read, parsed and checked."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json
from starlette.requests import ClientDisconnect

from functions.experiments.rules.verdict import NO_VALUE
from functions.kernel.contract import Function, Http, Request
from functions.kernel.validation import invalid, invalid_fields
from state.errors import Invalid, Malformed, TooLarge, UnsupportedMedia
from triggers.http.exchange import Exchange

T = TypeVar("T")

LONG = 64 * 1024
"""Bytes of a body or an answer from which reading or writing it counts as long; 64 KiB take about a millisecond."""
PARSED = frozenset({"", "application/json", "text/plain", "application/x-www-form-urlencoded"})
"""Content types read as JSON: the last one is what `curl -d` sends."""
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


class LoopTurns:
    """Turns of the event loop. After one long piece of work all other tasks run before the next."""

    def __init__(self) -> None:
        self._others: asyncio.Event | None = None
        """Set once all other tasks have run after long work; None: nothing was long."""

    async def do(self, work: Callable[[], T], size: Callable[[T], int]) -> T:
        """What `work` makes. It is long if its size is over `LONG` bytes, or if it fails."""
        while self._others is not None:
            await self._others.wait()
        try:
            made = work()
        except Exception:
            await self._let_others_run()
            raise
        if size(made) > LONG:
            await self._let_others_run()
        return made

    async def _let_others_run(self) -> None:
        self._others = have_run = asyncio.Event()
        try:
            await asyncio.sleep(0)
        finally:
            self._others = None
            have_run.set()


async def asked(declared: Function[Any, Any], door: Http, exchange: Exchange, turns: LoopTurns) -> Request:
    """The request model. Values of a body have their JSON types. In a URL everything is text, so numbers are read.

    Raises:
        Invalid: it does not validate, or one field stands in the query and in the body. Whatever `read_body` and
            `parsed` raise.
    """
    model: type[Request] = declared.request
    try:
        if door.method != "POST":
            return model.model_validate({**exchange.query_params, **exchange.path_params})
        body = await read_body(exchange, door.body_limit)
        return await turns.do(
            lambda: model.model_validate(_fields(model, door, exchange, parsed(body)), strict=True),
            lambda _: len(body),
        )
    except ValidationError as problem:
        raise invalid(problem) from problem


def _fields(model: type[Request], door: Http, exchange: Exchange, body: dict[str, Any]) -> dict[str, Any]:
    """The fields of a POST."""
    by_body = body if door.body is None else {door.body: body}
    by_query = _of_query(model, door, exchange.query_params) if door.query else {}
    if twice := sorted(by_body.keys() & by_query.keys()):
        raise invalid_fields(dict.fromkeys(twice, "stands in the query and in the body"))
    return {**by_body, **by_query, **exchange.path_params}


def _of_query(model: type[Request], door: Http, query: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a POST that its query holds, read from text as those of a GET are."""
    if unknown := sorted(query.keys() - {*door.query}):
        known = ", ".join(door.query)
        raise invalid_fields({name[:200]: f"the query of this route holds only {known}" for name in unknown})
    found: dict[str, Any] = {}
    for name, text in query.items():
        try:
            found[name] = _reader(model, name).validate_python(text)
        except ValidationError as problem:
            raise invalid_fields({name: problem.errors(include_url=False)[0]["msg"]}) from problem
    return found


@cache
def _reader(model: type[Request], name: str) -> TypeAdapter[Any]:
    """What reads one field from text."""
    field = model.model_fields[name]
    kind: Any = field.annotation
    bounded: Any = Annotated
    return TypeAdapter(bounded[kind, *field.metadata] if field.metadata else kind)


async def read_body(exchange: Exchange, limit: int) -> bytes:
    """The body, as sent. Raises TooLarge, UnsupportedMedia, ClientDisconnect (left, or too slow)."""
    kind = (exchange.header("content-type") or "").partition(";")[0].strip().lower()
    if kind not in PARSED:
        raise UnsupportedMedia(
            f"a body of type {kind[:100]!r} is not read here", hint="send JSON: content-type application/json"
        )
    if encoding := exchange.header("content-encoding"):
        raise UnsupportedMedia(
            f"a body encoded as {encoding[:100]!r} is not read here", hint="send it uncompressed"
        )
    declared = exchange.header("content-length") or "0"
    if declared.isdecimal() and int(declared) > limit:
        raise too_large(limit)
    parts, size, more = [], 0, True
    while more:
        message = await exchange.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        more = message.get("more_body", False)
        if size > limit:
            raise too_large(limit)
    return b"".join(parts)


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
    if found := BodyScan().fault(value):
        raise refusal(found)
    return value


@dataclass(frozen=True)
class Fault:
    """The refused part of a body."""

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
    place = fault.place or "body"
    hint = HINTS.get(fault.what, "no request needs that much: send text of your own as one string")
    return Invalid(
        f"{place} {fault.what}",
        hint=NO_RESULT if fault == Fault(NOT_FINITE, (f".{RESULT}",)) else hint,
        fields={"errors": [{"field": place, "problem": fault.what}]},
    )


class BodyScan:
    """One walk over a parsed body. Its time grows with the number of values only, not with their depth."""

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


def too_large(limit: int) -> TooLarge:
    size = f"{limit / 1024 / 1024:g} MiB" if limit >= 1024 * 1024 else f"{limit:,} bytes"
    return TooLarge(
        f"the body is over {size}", hint="send less: keep data, checkpoints and binaries out of the diff"
    )
