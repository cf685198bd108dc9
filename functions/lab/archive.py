"""lab::archive moves old patches of runs that were not kept out of Redis, into the archive."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from functions.contract import Command, Every, Response, function
from state.archive import PatchArchiving
from state.policies import Policies
from state.records import EndedRun, UsedPatches
from state.tags import Tags

log = logging.getLogger(__name__)

DAY_S = 86400.0
ARCHIVE_S = 3600
AT_ONCE = 25
MOST = 1000
"""Patches that one firing moves."""
TRIES = 10
"""Tries to remove a batch while its patches are used."""


class ArchivePatches(Command):
    """No fields."""


class ArchivedPatches(Response):
    moved: int
    more: bool
    """Others are left for the next firing."""
    without_archive: list[str]
    """Tags whose policy asks for it while the lab has no archive."""


@function("lab::archive", Every(ARCHIVE_S), role="operator", writes=True, costly=True)
async def archive(
    request: ArchivePatches, patches: PatchArchiving, policies: Policies, tags: Tags
) -> ArchivedPatches:
    """Move patches of runs that were not kept to NIGHTJAR_ARCHIVE, as old as patches.archive_after_days says.

    Each is read again there before it is removed from Redis. Later requests read it from the archive.
    The patches of open and of kept runs stay.
    """
    names = await tags.names()
    moved, without_archive = 0, list[str]()
    for tag in names:
        policy, _ = await policies.get(tag)
        if (days := policy.patches.archive_after_days) is None:
            continue
        if not patches.can_leave:
            log.warning("%s is to archive its patches, and NIGHTJAR_ARCHIVE names no place", tag)
            without_archive.append(tag)
            continue
        before = await patches.now() - days * DAY_S
        async for page in patches.ended(tag):
            waiting = leaving(page, await patches.used(tag, names), before)
            while waiting:
                if moved >= MOST:
                    return ArchivedPatches(moved=moved, more=True, without_archive=without_archive)
                batch, waiting = waiting[:AT_ONCE], waiting[AT_ONCE:]
                moved += await _removed(tag, names, await patches.copy(batch), patches)
    return ArchivedPatches(moved=moved, more=False, without_archive=without_archive)


async def _removed(tag: str, names: list[str], batch: list[str], patches: PatchArchiving) -> int:
    """Remove those of these patches that nothing uses by now; answers how many."""
    for _ in range(TRIES):
        used = await patches.used(tag, names)
        unused = [digest for digest in batch if digest not in used.digests]
        if await patches.remove(tag, unused, used.uses):
            return len(unused)
    return 0


def leaving(page: Iterable[EndedRun], used: UsedPatches, before: float) -> list[str]:
    """The patches of runs that ended before this time, but those that something still uses."""
    old = {digest for ended in page if ended.finished_at < before for digest in ended.digests}
    return sorted(old - used.digests)
