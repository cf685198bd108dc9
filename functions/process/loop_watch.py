"""Watches for code that blocks the event loop."""

from __future__ import annotations

import asyncio
import importlib
import logging
import time

from functions.process.meters import Meters

log = logging.getLogger(__name__)

LOOK_S = 0.05
"""Seconds between two looks, and the error of a measured block."""
NOTED_S = 0.1
HELD_MOST_S = 0.25
"""CPU seconds without a pause that no function may take of the event loop's thread."""


LATE = ("apscheduler.triggers.cron", "httpx", "prometheus_client.process_collector", "scipy.special")
"""Modules that functions import late, because each takes 0.1 to 1 s."""


async def import_late() -> None:
    """Import them before anybody waits for them, beside the event loop."""
    for name in LATE:
        await asyncio.to_thread(importlib.import_module, name)


async def watch(meters: Meters) -> None:
    """Count how long the event loop is blocked, until cancelled; log long blocks.

    It counts CPU time of the loop's thread. On a busy machine, waiting for a core does not count.
    """
    while True:
        before = time.thread_time()
        await asyncio.sleep(LOOK_S)
        held = time.thread_time() - before
        lately = meters.called_lately()
        if held >= NOTED_S:
            meters.held(held)
        if held > HELD_MOST_S:
            log.warning(
                "the event loop was held for %.2f s of CPU time; functions that ran meanwhile: %s",
                held,
                ", ".join(lately) or "none",
            )
