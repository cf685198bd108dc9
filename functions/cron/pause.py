"""cron::pause lets the clock fire a function no more."""

from __future__ import annotations

from pydantic import Field

from functions.contract import Command, Response, function
from functions.cron._ticking import Name, trigger_of
from state.records import stamp
from state.schedules import Schedules


class Pause(Command):
    function: Name
    reason: str = Field("", max_length=500)


class Paused(Response):
    function: str
    paused_since: str


@function("cron::pause", role="operator", writes=True)
async def pause(request: Pause, store: Schedules) -> Paused:
    """Fire a function by the clock no more until it is resumed; what was fired before still runs.

    A pause is deliberate: the ticks in it count as neither missed nor skipped, and nothing of it is made up.
    """
    trigger_of(request.function)
    since = await store.pause(request.function, request.reason)
    return Paused(function=request.function, paused_since=stamp(since))
