"""A lab of a simulation's own: embedded Redis, web, events and clock on a temporary folder."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from functions.kernel.process.logs import start_logging
from state.settings import Settings
from triggers.lab import LabParts, LocalLab
from triggers.ports import free_port


@asynccontextmanager
async def private_lab(announce: Callable[[str], None]) -> AsyncIterator[LocalLab]:
    """Start it; at the end it is drained, and its folder removed.

    Raises:
        Unavailable: a process of it does not start.
    """
    forget_settings()
    with tempfile.TemporaryDirectory(prefix="nightjar-simulate-", ignore_cleanup_errors=True) as folder:
        settings = Settings(data=Path(folder), lab="simulated", port=free_port(0))
        start_logging(settings, "up")
        async with LocalLab.started(LabParts(settings, repo=None), announce) as lab:
            yield lab


def forget_settings() -> None:
    """Take other labs' settings, Redis and tokens above all, out of our environment, which its processes inherit."""
    for name in [name for name in os.environ if name.upper().startswith("NIGHTJAR_")]:
        del os.environ[name]
    os.environ["NIGHTJAR_STALE_S"] = "6"


async def until_stopped(lab: LocalLab) -> None:
    """Return when Ctrl-C is pressed, or a process of the lab ends for good."""
    running = asyncio.create_task(lab.run(), name="lab")
    stopping = asyncio.create_task(lab.stop.wait(), name="stop")
    try:
        await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
        if running.done() and not lab.stop.is_set():
            running.result()
    finally:
        for task in (running, stopping):
            task.cancel()
        await asyncio.wait([running, stopping])
