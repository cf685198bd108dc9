"""Watches that nothing holds the event loop: what computes without a pause keeps all others waiting."""

from __future__ import annotations

import asyncio
import importlib
import logging
import time

from functions.process.meters import Meters

log = logging.getLogger(__name__)

LOOK_S = 0.05
"""Seconds between two looks: by so much a hold may be told too long."""
NOTED_S = 0.1
HELD_MOST_S = 0.25
"""CPU seconds without a pause that no function may take of the event loop's thread."""


LATE = ("apscheduler.triggers.cron", "httpx", "prometheus_client.process_collector", "scipy.special")
"""What functions import where they first need it, since it takes a tenth of a second to a whole one."""


async def import_late() -> None:
    """Import it before anybody waits for it, and beside what the event loop does."""
    for name in LATE:
        await asyncio.to_thread(importlib.import_module, name)


async def watch(meters: Meters) -> None:
    """Count, until it is cancelled, how long the event loop is held; log what held it for too long.

    It counts CPU time of the loop's thread: a busy machine, which lets no thread run, does not look like a function.
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
