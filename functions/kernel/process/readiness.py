"""Waits until Redis serves a lab of this version."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from functions.kernel.process.redaction import hide
from state.archive import Archive, archive_of
from state.client import Lab
from state.embedded import redis_url
from state.errors import Unavailable
from state.redis_server import look, refuse
from state.settings import Settings

log = logging.getLogger(__name__)

PATIENCE_S = 30.0
"""Seconds to wait for Redis."""


def connected(settings: Settings) -> AbstractAsyncContextManager[Lab]:
    """The lab's Redis, whether it answers or not."""
    url = redis_url(settings)
    hide(url)
    return lab_at(settings, url, archive_of(settings.archive))


@asynccontextmanager
async def lab_at(settings: Settings, url: str, archive: Archive | None = None) -> AsyncIterator[Lab]:
    """The lab in the Redis at this URL, whether it answers or not."""
    lab = Lab(settings.lab, url, timeout_s=settings.redis_timeout_s, archive=archive)
    try:
        yield lab
    finally:
        await lab.close()


async def until_ready(lab: Lab, settings: Settings | None = None) -> None:
    """Wait until Redis answers. An error that waiting cannot mend (a wrong password or layout) is raised at once.

    With settings, a Redis that would lose the lab is refused before anything is written.

    Raises:
        Unavailable: it does not answer within PATIENCE_S, or may not hold a lab.
    """
    give_up = time.monotonic() + PATIENCE_S
    while True:
        try:
            findings = look(await lab.facts()) if settings is not None else []
            refuse(findings)
            await lab.check()
            for finding in findings:
                if finding.state == "warning":
                    log.warning("Redis: %s; %s", finding.found, finding.remedy)
            return
        except Unavailable as problem:
            if problem.retry_after is None or time.monotonic() > give_up:
                raise
            await asyncio.sleep(0.2)
