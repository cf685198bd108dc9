"""The clock process: claims ticks for the functions that time fires. `python -P -m triggers.clock`."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from functions.contract import Function
from functions.process.lifecycle import Process, opened, run, stop_signals
from functions.rules.ticks import Schedule, due
from functions.table import schedules, table
from state.errors import Unavailable
from state.schedules import Schedules
from state.settings import Settings

log = logging.getLogger(__name__)

LONGEST_SLEEP_S = 30.0
"""Redis' clock may be set, and a machine may sleep: look again after this."""
HOLDS_S = 1.0
"""A clock's decision holds at least this long, in seconds."""


async def serve(settings: Settings, functions: Mapping[str, Function[Any, Any]] | None = None) -> None:
    """Claim the ticks of the table until SIGTERM or SIGINT; any number of clocks may run, each tick is fired once."""
    stop = stop_signals()
    async with opened("clock", settings) as process:
        await keep_time(process, table() if functions is None else functions, stop)


async def keep_time(
    process: Process, functions: Mapping[str, Function[Any, Any]], stop: asyncio.Event
) -> None:
    """Claim every tick of these functions until `stop`."""
    found = schedules(functions, process.settings).values()
    await asyncio.gather(*(_keep(process, schedule, stop) for schedule in found))


async def _keep(process: Process, schedule: Schedule, stop: asyncio.Event) -> None:
    while not stop.is_set():
        try:
            pause = await advance(process.schedules, schedule)
        except Unavailable as problem:
            log.warning("the ticks of %s wait: %s", schedule.function, problem.detail)
            pause = process.settings.retry_base_s
        with suppress(TimeoutError):
            async with asyncio.timeout(min(pause, LONGEST_SLEEP_S)):
                await stop.wait()


async def advance(store: Schedules, schedule: Schedule) -> float:
    """Claim what is due by Redis' clock, unless another clock did; answers the seconds until the next tick."""
    look = await store.look(schedule.function)
    ticks = look.ticks
    if ticks.waiting is not None and not look.handled + look.unread:
        await store.release(schedule.function)  # the one before it was buried
    found = due(schedule, ticks.until, look.now, changed=ticks.text != schedule.text)
    if found is not None and ticks.paused_at is None:
        answer = await store.claim(
            schedule.function,
            schedule.text,
            ticks.until,
            found.until,
            fire=found.fire,
            missed=found.missed,
            overlap=schedule.overlap,
            holds_until=look.now + max(schedule.grace_s, HOLDS_S),
        )
        if answer in ("early", "late"):  # Redis' clock was set, or this process stood still, since we looked
            return 0.0
    _, at = schedule.next_due(look.now if ticks.until is None else ticks.until, look.now)
    return max(at - look.now, 0.0)


if __name__ == "__main__":
    sys.exit(run("clock", serve))
