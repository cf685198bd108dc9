"""Old patches, which leave Redis for the archive."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence

from state.archive import no_archive
from state.client import Lab
from state.errors import Damaged
from state.indexes import members, values
from state.patches import unpacked
from state.records import OPEN, EndedRun, Status, UsedPatches

log = logging.getLogger(__name__)

PAGE = 1000
_FIELDS = ("finished_at", "diff_id", "sent_diff_id")
_LEFT: tuple[Status, ...] = ("discard", "crash", "timeout", "invalid", "retracted", "stopped", "lost")
"""Statuses of runs that nothing goes on from."""


class OldPatches:
    """The patches of all tags, by digest."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    @property
    def can_leave(self) -> bool:
        """Whether the lab has an archive to bring them to."""
        return self._lab.archive is not None

    async def now(self) -> float:
        """The time of Redis' clock."""
        return await self._lab.now()

    async def used(self, tag: str, tags: Sequence[str]) -> UsedPatches:
        """The patches of all open runs of these tags, and of the kept ones of one."""
        uses = await self._lab.command("GET", self._lab.keys("patch_uses"))
        found = set[str]()
        for name, status in [*((name, status) for name in tags for status in sorted(OPEN)), (tag, "keep")]:
            async for page in self._with_status(name, status):
                found |= {digest for ended in page for digest in ended.digests}
        return UsedPatches(uses or "0", frozenset(found))

    async def ended(self, tag: str) -> AsyncIterator[list[EndedRun]]:
        """The runs that were not kept, page by page."""
        for status in _LEFT:
            async for page in self._with_status(tag, status):
                yield await self._at_hand(page)

    async def copy(self, digests: Sequence[str]) -> list[str]:
        """Bring patches to the archive, too; answers which are there now, all but damaged ones.

        Raises:
            Unavailable: the archive does not take one; those before are there.
        """
        archive = self._lab.archive
        if archive is None:
            raise no_archive(digests[0])
        keys = [self._lab.keys("diffs", digest) for digest in digests]
        stored = await self._lab.binary("MGET", *keys)
        copied = list[str]()
        for digest, content in zip(digests, stored, strict=True):
            try:
                [patch] = await unpacked([digest], [content])
            except Damaged as problem:
                log.warning("a patch cannot be archived: %s", problem)
                continue
            if patch is not None:
                await asyncio.to_thread(archive.put, patch)
                copied.append(digest)
        return copied

    async def remove(self, tag: str, digests: Sequence[str], uses: str) -> bool:
        """Remove patches that the archive has; False where one was used since `uses` was read."""
        answer = await self._lab.move(
            "archive_patches",
            keys={"patches": [self._lab.keys("diffs", digest) for digest in digests]},
            args={"tag": tag, "digests": list(digests), "uses": uses},
        )
        return bool(answer != "stale")

    async def _with_status(self, tag: str, status: str) -> AsyncIterator[list[EndedRun]]:
        index, hashes = self._lab.keys.status(tag, status, "")[0], self._lab.keys.experiment("")
        offset = 0
        while True:
            reading = members(self._lab, index, hashes, limit=PAGE, offset=offset, fields=_FIELDS)
            [answer] = await self._lab.pipeline([reading])
            rows = values(answer).values()
            yield [EndedRun(float(at or "inf"), frozenset(filter(None, digests))) for at, *digests in rows]
            if len(rows) < PAGE:
                return
            offset += PAGE

    async def _at_hand(self, page: Sequence[EndedRun]) -> list[EndedRun]:
        """The same without the patches that have left already."""
        digests = sorted({digest for ended in page for digest in ended.digests})
        found = await self._lab.pipeline([("EXISTS", self._lab.keys("diffs", digest)) for digest in digests])
        here = {digest for digest, is_here in zip(digests, found, strict=True) if is_here}
        return [EndedRun(ended.finished_at, ended.digests & here) for ended in page if ended.digests & here]
