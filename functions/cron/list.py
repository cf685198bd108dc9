"""cron::list shows the functions that the clock fires: times, policies and counts of firings."""

from __future__ import annotations

import builtins

from functions.contract import Cron, Every, Http, Request, Response, function
from functions.cron._timed import timed
from functions.rules.firings import Missed, Overlap, Schedule
from functions.table import schedules, table
from state.records import stamp
from state.schedules import Schedules, ScheduleState
from state.settings import Settings


class ListSchedules(Request):
    """No fields."""


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
    functions: builtins.list[ScheduleView]
    now: str
    """The time of Redis' clock, which all times here use."""


@function("cron::list", Http("GET", "/api/cron/list"), Http("POST", "/api/cron/list"), role="viewer")
async def list(request: ListSchedules, store: Schedules, settings: Settings) -> ListedSchedules:
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
    return ScheduleView(
        function=schedule.function,
        trigger=str(trigger),
        interval_s=trigger.interval_s(settings) if isinstance(trigger, Every) else None,
        expression=trigger.expression if isinstance(trigger, Cron) else None,
        timezone=trigger.timezone if isinstance(trigger, Cron) else None,
        missed_policy=schedule.missed,
        overlap_policy=schedule.overlap,
        jitter_s=schedule.jitter_s,
        paused_since=_stamp(firings.paused_at),
        paused_reason=firings.paused_reason,
        next_scheduled=None if paused else stamp(following),
        next_fire=None if paused else stamp(at),
        last_scheduled=_stamp(firings.fired_scheduled),
        last_fired=_stamp(firings.fired_at),
        fired=firings.fired,
        by_hand=firings.by_hand,
        missed=firings.missed,
        skipped=firings.skipped,
        waiting=look.waiting,
        running=look.handled,
    )


def _stamp(seconds: float | None) -> str | None:
    return None if seconds is None else stamp(seconds)
