"""Waits until Redis serves a lab of this version."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from functions.process.redaction import hide
from state.archive import archive_of
from state.client import SCHEMA, Lab
from state.embedded import redis_url
from state.errors import Unavailable
from state.fitness import look, refuse
from state.settings import Settings

log = logging.getLogger(__name__)


@asynccontextmanager
async def connected(settings: Settings, *, worker: bool = False) -> AsyncIterator[Lab]:
    """The lab's Redis, whether it answers or not; a `worker` is another user of it."""
    url = redis_url(settings, worker=worker)
    hide(url)
    archive = None if worker else archive_of(settings.archive)
    lab = Lab(settings.lab, url, timeout_s=settings.redis_timeout_s, archive=archive)
    try:
        yield lab
    finally:
        await lab.close()


async def until_ready(lab: Lab, settings: Settings | None = None, patience_s: float = 30.0) -> None:
    """Wait until Redis answers; what waiting cannot mend (a wrong password or schema) is told at once.

    With settings, a Redis that would lose the lab is refused before anything is written, and a lab of an earlier
    version is brought to this one's schema, by us or by another process.

    Raises:
        Unavailable: it does not answer within `patience_s`, or may not hold a lab.
    """
    give_up = time.monotonic() + patience_s
    while True:
        try:
            findings = look(await lab.facts()) if settings is not None else []
            refuse(findings)
            if settings is not None:
                await _up_to_date(lab, settings)
            await lab.check()
            for finding in findings:
                if finding.state == "warning":
                    log.warning("Redis: %s; %s", finding.found, finding.remedy)
            return
        except Unavailable as problem:
            if problem.fields.get("migrating"):
                give_up = time.monotonic() + patience_s  # it goes on, however long it takes
            if problem.retry_after is None or time.monotonic() > give_up:
                raise
            await asyncio.sleep(0.2)


async def _up_to_date(lab: Lab, settings: Settings) -> None:
    """Bring a lab of an earlier version to the present schema, after a backup into the data directory."""
    found = await lab.recognise()
    if found >= SCHEMA:
        return
    from state.backup import back_up  # here, since a lab is brought forward once in its life
    from state.migrations import migrate

    alive_s = 1.5 * settings.heartbeat_s
    file = settings.data_dir / "backups" / f"{lab.name}-{lab.identity}-schema-{found}.nightjar"

    async def save() -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists():  # else it is whole, and older than a step that was broken off
            await back_up(lab, file, alive_s=alive_s)
        log.warning("bringing the lab %r from schema %d to %d; as it was: %s", lab.name, found, SCHEMA, file)

    await migrate(lab, found, alive_s=alive_s, before=save)
