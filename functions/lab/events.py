"""Events: listed, trimmed, and letters that no handler could take."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from functions.kernel.contract import Call, Command, Every, Request, Response, function
from state.errors import Conflict, NotFound
from state.events import Event, EventType
from state.ids import Moment, StreamId
from state.ids import Tag as TagName
from state.settings import Settings
from state.stream import DeadLetter, Stream, follows
from state.tokens import TICKET_S, Tokens

PAGE = 500
MOST_READ = 5000
"""Events that one request looks at: a rare type is found by following the cursor."""


class ListEvents(Request):
    tag: TagName | None = Field(None, description="only events of this tag")
    types: list[EventType] | None = Field(
        None,
        min_length=1,
        max_length=100,
        description="default: every type",
        examples=[["experiment.finished"]],
    )
    since: Moment | None = Field(
        None, description="only events after this one, or after these milliseconds since 1970"
    )
    order: Literal["newest", "oldest"] = Field("newest", description="which comes first")
    limit: int = Field(50, ge=1, le=500, description="most events that are answered")
    cursor: StreamId | None = Field(None, description="next_cursor of the page before")

    def wants(self, event: Event) -> bool:
        return self.tag in (None, event.tag) and (self.types is None or event.type in self.types)


class ListedEvents(Response):
    events: list[dict[str, Any]]
    next_cursor: str | None
    """Start of the next page, even if this one found nothing; None at the end."""


@function("event::list", role="viewer")
async def list_events(request: ListEvents, stream: Stream) -> ListedEvents:
    """The lab's events by tag, type and time, newest or oldest first; `next_cursor` leads on, even from no events."""
    found: list[dict[str, Any]] = []
    last, looked = None, 0
    async for event in _events(request, stream):
        if len(found) == request.limit or looked == MOST_READ:
            return ListedEvents(events=found, next_cursor=last)
        last, looked = event.id, looked + 1
        if request.wants(event):
            found.append(event.envelope())
    return ListedEvents(events=found, next_cursor=None)


async def _events(request: ListEvents, stream: Stream) -> AsyncIterator[Event]:
    cursor, since = request.cursor, request.since or "0"
    if request.order == "oldest":
        cursor = cursor if cursor and follows(cursor, since) else since
    while True:
        page = await (
            stream.before(cursor, PAGE) if request.order == "newest" else stream.after(cursor or "0", PAGE)
        )
        for event in page:
            if not follows(event.id, since):
                return
            yield event
        if len(page) < PAGE:
            return
        cursor = page[-1].id


class Ticket(Response):
    ticket: str
    """For `GET /api/events?ticket=`, once."""
    expires_in_s: int


@function("event::ticket", role="viewer", writes=True, keeps_answer=False)
async def ticket(request: Command, call: Call, tokens: Tokens) -> Ticket:
    """A name that opens one event stream within 30 seconds. It keeps tokens out of URLs."""
    if call.proof is None:
        raise Conflict("no token was sent, and none is needed", hint="GET /api/events without a ticket")
    return Ticket(ticket=await tokens.open_ticket(call.proof), expires_in_s=TICKET_S)


DAY_S = 86400.0
TRIM_S = 300
KEPT = 100_000
"""Newest events that are kept at any age."""


class HeldBack(Response):
    binding: str
    since: str
    """The first event that it has not handled."""


class Trimmed(Response):
    dropped: int
    kept: int
    held_back_by: HeldBack | None
    """The binding that keeps old events from being dropped."""
    bindings_dropped: list[str]
    """Functions and webhooks without a process for seven days of the lab's run."""
    consumers_dropped: int


@function("event::trim", Every(TRIM_S), role="operator", writes=True)
async def trim(request: Command, stream: Stream, settings: Settings) -> Trimmed:
    """Drop old events beyond the newest; never one that a function or webhook has yet to handle.

    An event goes once it is older than NIGHTJAR_KEEP_EVENTS_DAYS and not among the newest 100,000: a quiet lab keeps
    its history, a busy one its last night. Dead letters stay until they are redriven or discarded.
    """
    events, *others = await stream.bound_streams()
    told = await stream.trim(events, keep_s=settings.keep_events_days * DAY_S, keep=KEPT)
    groups, consumers = set(told.groups), told.consumers
    for name in others:  # redriven letters and firings: needed only until they are handled
        done = await stream.trim(name, keep_s=0.0, keep=0)
        groups |= set(done.groups)
        consumers += done.consumers
    return Trimmed(
        dropped=told.entries,
        kept=told.kept,
        held_back_by=HeldBack(binding=told.held.binding, since=told.held.since) if told.held else None,
        bindings_dropped=sorted(groups),
        consumers_dropped=consumers,
    )


# -- Which dead letters an operator means: one, or all of a binding or of any.


class ChooseLetters(Command):
    id: StreamId | None = Field(None, description="one letter; event::dead lists them")
    all: bool = Field(False, description="every letter")
    binding: str | None = Field(
        None, max_length=100, description="with all: only those of this function", examples=["search::adapt"]
    )
    dry_run: bool = Field(False, description="only say what would be done")

    @model_validator(mode="after")
    def _one_or_all(self) -> Self:
        if (self.id is None) != self.all:
            raise ValueError("name one id, or say all")
        return self


async def chosen(request: ChooseLetters, stream: Stream) -> list[DeadLetter]:
    """The letters of a request. Raises NotFound: there is none of this id."""
    letters = await stream.dead_letters(request.id, request.binding)
    if request.id is not None and not letters:
        raise NotFound(f"there is no dead letter {request.id}", hint="POST /api/event/dead lists them")
    return letters


class ListDeadLetters(Request):
    limit: int = Field(50, ge=1, le=1000, description="most letters that are answered")
    cursor: StreamId | None = Field(None, description="next_cursor of the page before")


class DeadLetterView(Response):
    id: str
    binding: str
    """The function that could not handle it."""
    error: str
    deliveries: int
    time: str
    event: dict[str, Any]


class DeadLetters(Response):
    dead: list[DeadLetterView]
    total: int
    next_cursor: str | None


@function("event::dead", role="viewer")
async def dead(request: ListDeadLetters, stream: Stream) -> DeadLetters:
    """Dead letters, oldest first, each with the event, its binding and the last error."""
    found = await stream.dead(request.cursor, request.limit)
    return DeadLetters(
        dead=[DeadLetterView(**vars(letter)) for letter in found],
        total=await stream.dead_count(),
        next_cursor=found[-1].id if len(found) == request.limit else None,
    )


class Redriven(Response):
    redriven: list[str]
    dry_run: bool


@function("event::redrive", role="operator", writes=True)
async def redrive(request: ChooseLetters, stream: Stream) -> Redriven:
    """Deliver one dead letter, or all of them, again; a dry run only says which."""
    letters, bound = await chosen(request, stream), await stream.redriven_to()
    served = [letter for letter in letters if letter.binding in bound]
    if request.id is not None and not served:
        raise Conflict(
            f"no process takes events for {letters[0].binding}",
            hint="its function left the table or its webhook was removed: POST /api/event/discard;"
            " a function of the clock is fired with POST /api/cron/run",
        )
    moved = [e.id for e in served if request.dry_run or await stream.revive(e) == "ok"]
    return Redriven(redriven=moved, dry_run=request.dry_run)


class Discarded(Response):
    discarded: list[str]
    dry_run: bool


@function("event::discard", role="operator", writes=True)
async def discard(request: ChooseLetters, stream: Stream) -> Discarded:
    """Delete one dead letter, or all of them; a dry run only says which."""
    letters = await chosen(request, stream)
    gone = [e.id for e in letters if request.dry_run or await stream.discard(e) == "ok"]
    return Discarded(discarded=gone, dry_run=request.dry_run)
