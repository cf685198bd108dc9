"""Which patches leave Redis for the archive."""

from __future__ import annotations

from collections.abc import Iterable

from state.records import EndedRun, UsedPatches


def leaving(page: Iterable[EndedRun], used: UsedPatches, before: float) -> list[str]:
    """The patches of runs that ended before this time, but those that something still uses."""
    old = {digest for ended in page if ended.finished_at < before for digest in ended.digests}
    return sorted(old - used.digests)
