"""cron::run fires a scheduled function now."""

from __future__ import annotations

from typing import Literal

from functions.contract import Call, Command, Response, function
from functions.cron._timed import Name, trigger_of
from state.errors import Conflict
from state.records import stamp
from state.schedules import Schedules


class FireNow(Command):
    function: Name


class FiredNow(Response):
    function: str
    became: Literal["fired", "waits"]
    """It waits if an earlier firing is unhandled and the overlap policy is queue."""
    at: str


@function("cron::run", role="operator", writes=True)
async def run(request: FireNow, call: Call, store: Schedules) -> FiredNow:
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
