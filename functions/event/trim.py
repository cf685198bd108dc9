"""event::trim drops old events that every binding has handled."""

from __future__ import annotations

from functions.contract import Command, Every, Response, function
from state.settings import Settings
from state.stream import Stream

DAY_S = 86400.0
TRIM_S = 300
KEPT = 100_000
"""Newest events that are kept at any age."""


class Trim(Command):
    """No fields."""


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
async def trim(request: Trim, stream: Stream, settings: Settings) -> Trimmed:
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
