"""cron::pause stops the clock from firing a function."""

from __future__ import annotations

from pydantic import Field

from functions.contract import Command, Response, function
from functions.cron._timed import Name, trigger_of
from state.records import stamp
from state.schedules import Schedules


class PauseSchedule(Command):
    function: Name
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
