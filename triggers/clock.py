"""The clock process: fires functions on schedule. `python -P -m triggers.clock`."""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import suppress

from functions.kernel.own import load
from functions.kernel.process.lifecycle import Process, opened
from functions.kernel.process.running import run, stop_signals
from functions.kernel.rules.firings import GRACE_S, Schedule, due
from functions.kernel.table import schedules, table
from state.errors import Unavailable
from state.schedules import Schedules
from state.settings import Settings

log = logging.getLogger(__name__)

LONGEST_SLEEP_S = 30.0
"""Looks again after this at the latest: Redis' clock may be set, and a machine may sleep."""
RETRY_S = 1.0
"""Pause while Redis is away."""


async def serve(settings: Settings) -> None:
    """Fire the table's functions until SIGTERM or SIGINT; each firing comes once, from any of the clocks."""
    load(settings)
    stop = stop_signals()
    async with opened("clock", settings, functions=()) as process:
        found = schedules(table(), process.settings).values()
        await asyncio.gather(*(_keep(process, schedule, stop) for schedule in found))


async def _keep(process: Process, schedule: Schedule, stop: asyncio.Event) -> None:
    while not stop.is_set():
        try:
            pause = await advance(process.schedules, schedule)
        except Unavailable as problem:
            log.warning("the firings of %s wait: %s", schedule.function, problem.detail)
            pause = RETRY_S
        with suppress(TimeoutError):
            async with asyncio.timeout(min(pause, LONGEST_SLEEP_S)):
                await stop.wait()


async def advance(store: Schedules, schedule: Schedule) -> float:
    """Claim what is due by Redis' clock, unless another clock has; answers the seconds until the next firing."""
    look = await store.look(schedule.function)
    firings = look.firings
    if firings.waiting is not None and not look.handled + look.unread:
        await store.release(schedule.function)  # the earlier one became a dead letter
    found = due(schedule, firings.until, look.now, changed=firings.text != schedule.text)
    if found is not None:
        answer = await store.claim(
            schedule.function,
            schedule.text,
            firings.until,
            found.until,
            fire=found.fire,
            missed=found.missed,
            overlap=schedule.overlap,
            holds_until=look.now + GRACE_S,
        )
        if answer in ("early", "late"):  # since the look Redis' clock was set, or this process was stopped
            return 0.0
    _, at = schedule.next_due(look.now if firings.until is None else firings.until, look.now)
    return max(at - look.now, 0.0)


def main() -> int:
    return run("clock", serve)


if __name__ == "__main__":
    sys.exit(main())
