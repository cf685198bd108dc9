"""Schedules: what the clock fires, and what an operator does to it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from functions.kernel.contract import Call, Command, Cron, Every, Http, Request, Response, function
from functions.kernel.rules.firings import Missed, Overlap, Schedule
from functions.kernel.table import schedules, table
from state.errors import Conflict, NotFound
from state.records import stamp, stamped, view_of
from state.schedules import Schedules, ScheduleState
from state.settings import Settings

# -- The functions that the clock fires, from the function table.

Name = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z]+::[a-z_]+$", max_length=100),
    Field(description="a function that the clock fires: cron::list shows them", examples=["pool::sweep"]),
]
"""A function's name, `noun::verb`."""


def timed() -> dict[str, Every | Cron]:
    """The clock trigger of each function that has one, by name."""
    return {name: found.clock for name, found in table().items() if found.clock is not None}


def trigger_of(function: str) -> Every | Cron:
    """The clock trigger of a function. Raises NotFound: it has none."""
    found = timed()
    if function not in found:
        raise NotFound(f"the clock does not fire {function!r}", hint=f"it fires {', '.join(found)}")
    return found[function]


class ScheduleView(Response):
    function: str
    trigger: str
    """The declaration in words."""
    interval_s: float | None
    expression: str | None
    timezone: str | None
    missed_policy: Missed
    overlap_policy: Overlap
    jitter_s: float
    paused_since: str | None
    paused_reason: str | None
    next_scheduled: str | None
    """None while it is paused."""
    next_fire: str | None
    """`next_scheduled` plus jitter."""
    last_scheduled: str | None
    last_fired: str | None
    fired: int
    by_hand: int
    missed: int
    """Firings that were not made, because no clock ran."""
    skipped: int
    """Firings that were not made, because an earlier one was unhandled."""
    waiting: int
    """Firings whose handler has not begun."""
    running: int
    """Firings whose handler runs, or that wait for a retry."""


class ListedSchedules(Response):
    functions: list[ScheduleView]
    now: str
    """The time of Redis' clock, which all times here use."""


@function("cron::list", Http("GET", "/api/cron/list"), Http("POST", "/api/cron/list"), role="viewer")
async def list_schedules(request: Request, store: Schedules, settings: Settings) -> ListedSchedules:
    """The functions that the clock fires: next and last time, policies, missed and skipped firings, pauses."""
    found, declared = timed(), schedules(table(), settings)
    looks = await store.looks([*found])
    rows = [
        _row(trigger, declared[name], look, settings)
        for (name, trigger), look in zip(found.items(), looks, strict=True)
    ]
    return ListedSchedules(functions=rows, now=stamp(max(look.now for look in looks)))


def _row(trigger: Every | Cron, schedule: Schedule, look: ScheduleState, settings: Settings) -> ScheduleView:
    firings = look.firings
    following, at = schedule.next_due(look.now if firings.until is None else firings.until, look.now)
    paused = firings.paused_at is not None
    return view_of(
        ScheduleView,
        firings,
        function=schedule.function,
        trigger=str(trigger),
        interval_s=trigger.interval_s(settings) if isinstance(trigger, Every) else None,
        expression=trigger.expression if isinstance(trigger, Cron) else None,
        timezone=trigger.timezone if isinstance(trigger, Cron) else None,
        missed_policy=schedule.missed,
        overlap_policy=schedule.overlap,
        jitter_s=schedule.jitter_s,
        paused_since=stamped(firings.paused_at),
        next_scheduled=None if paused else stamp(following),
        next_fire=None if paused else stamp(at),
        last_scheduled=stamped(firings.fired_scheduled),
        last_fired=stamped(firings.fired_at),
        waiting=look.waiting,
        running=look.handled,
    )


class ScheduleCommand(Command):
    function: Name


class FiredNow(Response):
    function: str
    became: Literal["fired", "waits"]
    """It waits if an earlier firing is unhandled and the overlap policy is queue."""
    at: str


@function("cron::run", role="operator", writes=True)
async def run(request: ScheduleCommand, call: Call, store: Schedules) -> FiredNow:
    """Fire a scheduled function now, even if it is paused, once per request id; the events process runs it."""
    trigger = trigger_of(request.function)
    given = request.request_id or call.idempotency_key
    became, when = await store.run(request.function, trigger.overlap, given)
    if became == "overlaps":
        raise Conflict(
            f"an earlier firing of {request.function!r} is unhandled, and its overlap policy is {trigger.overlap!r}",
            hint="try again when cron::list shows it neither waiting nor running",
            retry_after=1.0,
        )
    return FiredNow(function=request.function, became=became, at=stamp(when))


class PauseSchedule(ScheduleCommand):
    reason: str = Field("", max_length=500, description="why, for those who wonder", examples=["maintenance"])


class PausedSchedule(Response):
    function: str
    paused_since: str


@function("cron::pause", role="operator", writes=True)
async def pause(request: PauseSchedule, store: Schedules) -> PausedSchedule:
    """Stop the clock from firing a function until cron::resume; earlier firings still run.

    Times within the pause are not made up, and count as neither missed nor skipped.
    """
    trigger_of(request.function)
    since = await store.pause(request.function, request.reason)
    return PausedSchedule(function=request.function, paused_since=stamp(since))


class ResumedSchedule(Response):
    function: str
    paused_since: str | None
    """None if it was not paused."""


@function("cron::resume", role="operator", writes=True)
async def resume(request: ScheduleCommand, store: Schedules) -> ResumedSchedule:
    """Let the clock fire a paused function again, at its next scheduled time."""
    trigger_of(request.function)
    since = await store.resume(request.function)
    return ResumedSchedule(function=request.function, paused_since=stamped(since))
