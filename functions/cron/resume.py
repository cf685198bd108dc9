"""cron::resume lets the clock fire a function again."""

from __future__ import annotations

from functions.contract import Command, Response, function
from functions.cron._timed import Name, trigger_of
from state.records import stamp
from state.schedules import Schedules


class ResumeSchedule(Command):
    function: Name


class ResumedSchedule(Response):
    function: str
    paused_since: str | None
    """None if it was not paused."""


@function("cron::resume", role="operator", writes=True)
async def resume(request: ResumeSchedule, store: Schedules) -> ResumedSchedule:
    """Let the clock fire a paused function again, at its next scheduled time."""
    trigger_of(request.function)
    since = await store.resume(request.function)
    return ResumedSchedule(function=request.function, paused_since=None if since is None else stamp(since))
