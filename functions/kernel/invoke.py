"""The Invoker binds the table to a process's stores and calls functions by name, in one lane."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import is_dataclass
from typing import Any, get_type_hints

from pydantic import BaseModel

from functions.kernel.contract import FROM_OUTSIDE, BadTable, Call, FiredBy, Function, Lane, Nothing
from functions.kernel.process.logs import bound
from functions.kernel.process.meters import CallCount, Meters
from functions.kernel.process.tracing import Tracing
from functions.kernel.rules.access import Caller, allows, check_tags
from functions.kernel.table import OWN
from functions.kernel.validation import validated
from state.errors import Forbidden, NightjarError, NotFound, TooManyRequests
from state.own import Own

log = logging.getLogger(__name__)

IDS = ("experiment_id", "attempt", "tag", "gpu_id")
"""Fields of a request that stand on every line that is logged while it is answered."""
COSTLY_EACH = 4
"""Calls of costly functions that one caller may have under way in one process."""
WAITS_EACH = 64
"""Waiting calls that one token may have under way in one process."""
UNCOUNTED = nullcontext()


class Invoker:
    """Calls the functions of `table` that `lane` can run, with the `provided` objects, bound by type once.

    Raises:
        BadTable: a function of this lane asks for something that is not provided.
    """

    def __init__(
        self,
        table: Mapping[str, Function[Any, Any]],
        provided: Sequence[object],
        lane: Lane = "web",
        *,
        meters: Meters | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self.table = table
        self._meters = meters or Meters(lane)
        self._tracing = tracing or Tracing()
        self._costly: Counter[str] = Counter()
        """Number of costly calls under way by caller."""
        self._waits: Counter[str] = Counter()
        """Number of waiting calls under way by token."""
        self._bound: dict[str, tuple[Function[Any, Any], dict[str, object], str | None]] = {}
        """By name: the function, its arguments, and the parameter that takes the call."""
        known = _Provided(provided)
        for name, declared in table.items():
            runs = declared if declared.accept is None or declared.lane == lane else declared.accept
            needs = runs.needs.items()
            arguments = {
                parameter: known.of(kind, f"{name!r} asks for {parameter}")
                for parameter, kind in needs
                if kind is not Call
            }
            for parameter, given in arguments.items():
                if isinstance(given, Own):
                    arguments[parameter] = given.of(name.partition("::")[0], writes=declared.writes)
            self._bound[name] = runs, arguments, next((p for p, kind in needs if kind is Call), None)

    async def call(self, name: str, request: BaseModel | Mapping[str, object], call: Call) -> BaseModel:
        """Check the caller's role, validate, run; counted, traced, and with its ids on every line that is logged.

        Raises:
            NotFound: no such function. Forbidden: not this caller's. Invalid: the request does not validate.
            TooManyRequests: it is costly, or waits, and as many such calls of this caller as may be are under way.
        """
        if name not in self._bound:
            raise NotFound(f"there is no function {name!r}", hint="GET /api/function/list names them all")
        declared, arguments, takes_call = self._bound[name]
        began, outcome = time.perf_counter(), "fault"
        self._meters.begun(name)
        with self._tracing.span(name, call.traceparent) as span, bound(function=name) as facts:
            if call.request_id is not None:
                facts["request_id"] = call.request_id
            try:
                check_role(declared, call.caller)
                asked = validated(declared, request)
                fields = vars(asked)
                if call.caller.tags is not None and not declared.reads:
                    check_tags(call.caller, fields)
                ids = {field: value for field in IDS if (value := fields.get(field)) is not None}
                facts |= ids
                span.note(**ids)
                if takes_call is not None:
                    is_ours = span.traceparent == call.traceparent
                    here = call if is_ours else call._replace(traceparent=span.traceparent)
                    arguments = {**arguments, takes_call: here}
                is_limited = call.trigger in FROM_OUTSIDE and (declared.costly or declared.held_for)
                with self._under_way(declared, asked, call.caller) if is_limited else UNCOUNTED:
                    answer: BaseModel | None = await declared.handler(asked, **arguments)
                is_wrong = name in OWN and not isinstance(answer, declared.response)
                if is_wrong and not (answer is None and declared.may_be_empty):
                    raise TypeError(
                        f"{name} answers {type(answer).__name__}, no {declared.response.__name__}"
                    )
                outcome = "ok"
                return Nothing() if answer is None else answer
            except NightjarError as problem:
                outcome = type(problem).__name__.lower()
                raise
            except asyncio.CancelledError:
                outcome = "cancelled"
                raise
            except SystemExit as problem:  # it would end the process
                raise RuntimeError(f"{name} wants to end the process") from problem
            finally:
                seconds = time.perf_counter() - began
                span.note(trigger=call.trigger, role=call.caller.role, outcome=outcome)
                self._meters.called(name, call.trigger, outcome, seconds)
                log.debug("%s by %s: %s in %.3f s", name, call.trigger, outcome, seconds)

    def _under_way(
        self, declared: Function[Any, Any], asked: BaseModel, caller: Caller
    ) -> AbstractContextManager[None]:
        """Around a call: counts it if its caller may have only so many like it at once."""
        if declared.costly:
            refusal = TooManyRequests(
                f"{COSTLY_EACH} calls of {caller.name!r} as costly as {declared.name} are under way",
                hint="come back after Retry-After: one of them ends within seconds",
                retry_after=1.0,
            )
            return _one_more(self._costly, caller.token_id or caller.name, COSTLY_EACH, refusal)
        if caller.token_id is not None and declared.held_for and getattr(asked, declared.held_for) > 0:
            refusal = TooManyRequests(
                f"{WAITS_EACH} calls of {caller.name!r} that wait, as {declared.name} may, are under way",
                hint=f"come back after Retry-After, or send {declared.held_for}=0; GET /api/events tells every end",
                retry_after=5.0,
            )
            return _one_more(self._waits, caller.token_id, WAITS_EACH, refusal)
        return UNCOUNTED

    def counts(self, tallies: Mapping[str, float]) -> dict[str, CallCount]:
        """Calls by function, of this process and of those that have handed over these `tallies`."""
        return self._meters.of_functions(tallies)

    def system(self, name: str, trigger: FiredBy = "call", traceparent: str | None = None) -> Call:
        """The call of an event, of the clock or of a queue: an operator's."""
        return Call(Caller(name, "operator"), invoker=self, trigger=trigger, traceparent=traceparent)


@contextmanager
def _one_more(under_way: Counter[str], caller: str, most: int, refusal: TooManyRequests) -> Iterator[None]:
    """Count a call of this caller while it is under way, unless `most` of them are."""
    if under_way[caller] >= most:
        raise refusal
    under_way[caller] += 1
    try:
        yield
    finally:
        under_way[caller] -= 1
        if not under_way[caller]:
            del under_way[caller]


def check_role(declared: Function[Any, Any], caller: Caller) -> None:
    """Refuse a caller of a role that may not call it. Raises Forbidden: it may not."""
    if not allows(declared.roles, caller.role):
        raise Forbidden(
            f"{declared.name} needs the role {' or '.join(declared.roles)}, {caller.described}",
            hint=caller.remedy,
        )


class _Provided:
    """The objects that functions may ask for, found once for each type."""

    def __init__(self, things: Sequence[object]) -> None:
        self._things = things
        self._found: dict[type, object] = {}

    def of(self, kind: type, who: str) -> object:
        """The one thing of this type, or a bundle: a dataclass of things that are provided."""
        if kind not in self._found:
            self._found[kind] = self._look_for(kind, who)
        return self._found[kind]

    def _look_for(self, kind: type, who: str) -> object:
        found = [thing for thing in self._things if isinstance(thing, kind)]
        if not found and is_dataclass(kind):
            parts = get_type_hints(kind)
            return kind(**{part: self.of(of, f"{who}.{part}") for part, of in parts.items()})
        if len(found) != 1:
            have = "nobody provides" if not found else "several provide"
            raise BadTable(f"{who}: {kind.__name__}, which {have} here")
        return found[0]
