"""Declares functions: `@function` makes a row of the table from a handler and its triggers.

    @function("pool::release", role=("agent", "worker"), writes=True)
    async def release(request: Release, pool: Pool) -> Released: ...

A declaration has no side effect; `functions.kernel.table` collects and checks them.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import BaseModel, ConfigDict, Field

from functions.kernel.rules.access import Audience, Caller, CallerRole, allows
from functions.kernel.rules.firings import CronTimes, Missed, Overlap, Schedule, SteadyTimes, Times
from state.ids import Id, RequestKey, Tag
from state.settings import Settings
from state.token_values import Proof

if TYPE_CHECKING:
    from functions.kernel.invoke import Invoker


MIB = 1024 * 1024

FiredBy = Literal["http", "mcp", "event", "cron", "queue", "call"]
"""What fires a call: a trigger, a GPU's queue, or another function or process of Nightjar."""
FROM_OUTSIDE: frozenset[FiredBy] = frozenset({"http", "mcp"})
"""Triggers of calls by people and agents, whose costly and waiting calls are limited."""
Lane = Literal["web", "gpu", "pi"]

Category = Literal[
    "architecture",
    "optimizer",
    "hyperparams",
    "activation",
    "attention",
    "embedding",
    "normalization",
    "regularization",
    "scheduling",
    "initialization",
    "simplification",
    "combination",
    "ablation",
    "other",
]
CATEGORIES: tuple[Category, ...] = get_args(Category)
"""Categories of an experiment, in the published order."""

Line = Annotated[str, Field(min_length=1, max_length=4000)]
"""A short text from an agent: 1 to 4,000 characters."""


class Request(BaseModel):
    """A request; unknown fields, NaN and infinity are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


class Command(Request):
    """A request that changes state; `request_id` makes a repeated one safe, like the Idempotency-Key header."""

    request_id: Id | None = Field(
        None, description="the same id and body again gives the first answer", examples=["6f9b0f8e-5a43"]
    )


class OfTag(Request):
    """A request about one tag."""

    tag: Tag


class TagCommand(Command):
    """A command that changes one tag."""

    tag: Tag


class Response(BaseModel):
    """A response."""

    FOR_AGENTS: ClassVar[tuple[str, ...]] = ()
    """The fields that agents use, which the MCP tools show alone; empty: all."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False, defer_build=True)

    def as_json(self) -> bytes:
        return self.model_dump_json().encode()


class Sparse(Response):
    """A response whose JSON leaves out its fields that are None: `{}` where all are."""

    def as_json(self) -> bytes:
        unsaid = {name for name in type(self).model_fields if getattr(self, name) is None}
        return self.model_dump_json(exclude=unsaid).encode()


class Picture(Response):
    """A response that is sent as its bytes."""

    media_type: str
    content: bytes


class Text(Response):
    """A response that is sent as text."""

    content: str
    media_type: str = "text/markdown; charset=utf-8"


class Nothing(Response):
    """The answer of a handler that returned None; 204 without a body over HTTP."""


@dataclass(frozen=True)
class Http:
    """Fire on an HTTP request; `{name}` in the path fills the request's field of that name.

    The other fields come from the query of a GET or DELETE, and from the JSON object that is the body of a POST.
    """

    method: Literal["GET", "POST", "DELETE"]
    path: str
    body_limit: int = MIB
    query: tuple[str, ...] = ()
    """Fields that may stand in the query of a POST, as text."""
    body: str | None = None
    """The one field that the whole body of a POST fills, whatever names the body holds."""
    has_etag: bool = False
    """The answer carries an ETag of its body; a request that names it in If-None-Match gets 304 without a body."""

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True)
class On:
    """Fire on events of the lab's stream, at least once for each.

    `debounce="tag"` makes a burst one call per tag, `debounce="lab"` one call. The request has what the newest event
    says; its field `experiment_ids` has the experiments of all events, oldest first. `having` names a field of their
    data: events without it are passed over.
    """

    events: tuple[str, ...]
    debounce: Literal["tag", "lab"] | None = None
    max_deliveries: int = 8
    having: str | None = None

    def __init__(
        self,
        *events: str,
        debounce: Literal["tag", "lab"] | None = None,
        max_deliveries: int = 8,
        having: str | None = None,
    ) -> None:
        object.__setattr__(self, "events", events)
        object.__setattr__(self, "debounce", debounce)
        object.__setattr__(self, "max_deliveries", max_deliveries)
        object.__setattr__(self, "having", having)

    def __str__(self) -> str:
        return f"on {', '.join(self.events)}"


@dataclass(frozen=True, kw_only=True)
class Timed(ABC):
    """What every trigger of the clock declares beside its times.

    A request may have the fields `scheduled` and `fired` (seconds since 1970, Redis' clock; `datetime` works too),
    `missed` (earlier firings that were given up) and `by_hand`; they are filled in.
    """

    each: Literal["gpu"] | None = None
    """Call it once for every GPU, with its `gpu_id`."""
    missed: Missed = "latest"
    """Missed firings: skip them, or fire the latest."""
    overlap: Overlap = "skip"
    """While an earlier firing is unhandled: drop the next one, let it wait (one at most), or run both."""
    jitter_s: float = 0.0
    """Each firing is delayed by up to this many seconds; all clocks agree on each delay."""

    @abstractmethod
    def times(self, settings: Settings) -> Times:
        """When it fires. Raises ValueError: it never fires, or at times that do not exist."""

    def schedule(self, function: str, settings: Settings) -> Schedule:
        """The schedule of a function that declares this. Raises BadTable: a declaration that cannot work."""
        try:
            return Schedule(
                function=function,
                text=str(self),
                times=self.times(settings),
                missed=self.missed,
                overlap=self.overlap,
                jitter_s=self.jitter_s,
                salt=settings.lab,
            )
        except ValueError as problem:
            raise BadTable(f"{function!r}: {problem}") from problem

    def _policies(self) -> str:
        jitter = f", jitter {self.jitter_s:g} s" if self.jitter_s else ""
        each = f" for each {self.each}" if self.each else ""
        return f"{each} (missed: {self.missed}, overlap: {self.overlap}{jitter})"


@dataclass(frozen=True)
class Every(Timed):
    """Fire at a steady interval, counted from 1970: seconds, or the name of the setting that holds them."""

    seconds: float | str

    def interval_s(self, settings: Settings) -> float:
        if not isinstance(self.seconds, str):
            return self.seconds
        interval = getattr(settings, self.seconds, None)
        if not isinstance(interval, float):
            raise ValueError(f"there is no setting {self.seconds!r}")
        return interval

    def times(self, settings: Settings) -> Times:
        interval = self.interval_s(settings)
        steady = SteadyTimes(interval)
        if not 0 <= self.jitter_s < interval:
            raise ValueError(f"a jitter of {self.jitter_s:g} s is no part of an interval of {interval:g} s")
        return steady

    def __str__(self) -> str:
        interval = self.seconds if isinstance(self.seconds, str) else f"{self.seconds:g} s"
        return f"every {interval}{self._policies()}"


@dataclass(frozen=True)
class Cron(Timed):
    """Fire by a cron expression of 5 fields, or 6 with seconds first.

    Weekdays count from Sunday = 0 (7 and names do too); a day of the month and a weekday must both fit. See
    `kernel.rules.firings.CronTimes` for hours that a time zone leaves out or repeats.
    """

    expression: str
    timezone: str = "UTC"

    def times(self, settings: Settings) -> Times:
        return CronTimes(self.expression, self.timezone)

    def __str__(self) -> str:
        return f"cron {self.expression!r} {self.timezone}{self._policies()}"


Trigger = Http | On | Every | Cron


class Call(NamedTuple):
    """The caller, and the way to call other functions."""

    caller: Caller
    invoker: Invoker
    proof: Proof | None = None
    """The caller's proof of identity; None: it has shown nothing."""
    request_id: str | None = None
    idempotency_key: str | None = None
    traceparent: str | None = None
    trigger: FiredBy = "call"
    address: str = ""
    """Address of an HTTP request's client, or of the proxy before the lab."""
    url: str = ""
    """Address of the lab that an HTTP request was sent to."""

    def lab_url(self, settings: Settings) -> str:
        """The lab's address for this caller: the configured one, or the one that it used."""
        return settings.base_url if settings.url else self.url or settings.base_url

    def key(self, request_id: str | None) -> str | None:
        """The idempotency key of this call: the id in its body, else the header's, made the caller's own."""
        given = request_id or self.idempotency_key
        return None if given is None else self.scoped(given)

    def request_key(self, function: str, request: Command) -> RequestKey | None:
        """Key that identifies a repeated call; None if the caller sent no id."""
        given = self.key(request.request_id)
        return None if given is None else RequestKey.of(function, given, request)

    def scoped(self, given: str) -> str:
        """An idempotency key made this caller's own, so that equal texts of two callers differ."""
        is_ours = self.caller.token_id is None and self.caller.may_do_all
        return given if is_ours else f"{self.caller.name}\n{given}"

    async def invoke(self, name: str, request: Mapping[str, object]) -> dict[str, Any]:
        """Call another group's function as this caller; returns its response as plain values."""
        return (await self.invoker.call(name, request, self._replace(trigger="call"))).model_dump()


Rq = TypeVar("Rq", bound=Request)
Rs = TypeVar("Rs", bound=BaseModel)
"""A Response, or a `RootModel[list[X]]` for an answer that is a bare array."""
Handler = Callable[..., Awaitable[Rs | None]]


@dataclass(frozen=True)
class Function(Generic[Rq, Rs]):
    """One row of the table."""

    name: str
    handler: Handler[Rs]
    request: type[Rq]
    response: type[Rs]
    """Without the None that a handler may return, see `may_be_empty`."""
    triggers: tuple[Trigger, ...]
    roles: tuple[Audience, ...]
    lane: Lane
    writes: bool
    keeps_answer: bool
    """Whether a repeated idempotency key gets the first answer; False where the answer must be current."""
    needs: Mapping[str, type]
    """Handler parameters after the request, by name."""
    knows_caller: bool = False
    """For role anyone: whether the function learns which token, or local caller of an open lab, calls it."""
    is_public: bool = False
    """For role viewer: whether anybody may call it while the setting `swarm_public_reads` is true."""
    may_be_empty: bool = False
    """Whether the handler may return None: 204 over HTTP."""
    costly: bool = False
    """Whether a call may take seconds of CPU; `invoke.COSTLY_EACH` limits the concurrent calls of a caller."""
    held_for: str | None = None
    """Request field with the seconds a call may wait; `invoke.WAITS_EACH` limits the waiting calls of a token."""
    mcp: bool = False
    """Whether it is a tool at /mcp by itself, `<noun>_<verb>`."""
    accept: Function[Rq, Any] | None = None
    """The function that runs when another lane calls this one: it queues the work and answers 202."""

    @property
    def description(self) -> str:
        """First paragraph of the handler's docstring."""
        return inspect.cleandoc(self.handler.__doc__ or "").split("\n\n")[0].replace("\n", " ")

    @property
    def doors(self) -> Iterator[Http]:
        return (t for t in self.triggers if isinstance(t, Http))

    @property
    def answering(self) -> Function[Any, Any]:
        """The function whose answer callers of other lanes get: `accept` if it queues the work, else itself."""
        return self.accept or self

    @property
    def clock(self) -> Every | Cron | None:
        """Its trigger of the clock; a function has one at most."""
        return next((t for t in self.triggers if isinstance(t, Every | Cron)), None)

    def allows(self, role: CallerRole) -> bool:
        return allows(self.roles, role)

    @property
    def reads(self) -> bool:
        """Whether viewers may call it."""
        return "viewer" in self.roles


def function(
    name: str,
    *triggers: Trigger,
    role: Audience | tuple[Audience, ...],
    lane: Lane = "web",
    writes: bool = False,
    keeps_answer: bool = True,
    body_limit: int = MIB,
    costly: bool = False,
    held_for: str | None = None,
    knows_caller: bool = False,
    is_public: bool = False,
    mcp: bool = False,
    accept: Function[Any, Any] | None = None,
) -> Callable[[Handler[Rs]], Function[Any, Rs]]:
    """Declare a function; without an `Http` among `triggers` it gets `POST /api/<noun>/<verb>`.

    `keeps_answer=False` is for a write whose repetition is safe and must answer the present state: a stored lease may
    belong to another experiment by now.
    """
    noun, _, verb = name.partition("::")
    if not any(isinstance(t, Http) for t in triggers):
        triggers = (Http("POST", f"/api/{noun}/{verb.replace('_', '-')}", body_limit), *triggers)

    def declare(handler: Handler[Rs]) -> Function[Any, Rs]:
        hints = get_type_hints(handler)
        named = [*inspect.signature(handler).parameters] or ["request"]
        if missing := [parameter for parameter in (*named, "return") if parameter not in hints]:
            raise BadTable(f"{name!r}: its handler has no annotation of {missing[0]!r}")
        first, *others = named
        response, may_be_empty = _answer_of(hints["return"])
        return Function(
            name=name,
            handler=handler,
            request=hints[first],
            response=response,
            triggers=triggers,
            roles=(role,) if isinstance(role, str) else tuple(role),
            lane=lane,
            writes=writes,
            keeps_answer=writes and keeps_answer,
            needs={other: hints[other] for other in others},
            knows_caller=knows_caller,
            is_public=is_public,
            may_be_empty=may_be_empty,
            costly=costly,
            held_for=held_for,
            mcp=mcp,
            accept=accept,
        )

    return declare


def _answer_of(returned: Any) -> tuple[Any, bool]:
    """The response that a handler's annotation names, and whether it may be None instead."""
    if returned is NoneType:
        return Nothing, True
    if (
        get_origin(returned) not in (UnionType, Union)
        or len(choices := {*get_args(returned)} - {NoneType}) != 1
    ):
        return returned, False
    return choices.pop(), True


class BadTable(Exception):
    """A declaration that cannot work: the process does not start."""


# -- Requests about a swarm: they name its tag, or mean the lab's own.


class OfSwarm(Request):
    """A request about one swarm."""

    tag: Tag | None = Field(None, description="the tag; default: NIGHTJAR_SWARM_TAG", examples=["swarm"])

    def tag_in(self, settings: Settings) -> str:
        return self.tag or settings.swarm_tag
