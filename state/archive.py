"""The stored form of patches, the archive of a lab's old ones, and how they leave Redis for it.

A patch is stored compressed, under the SHA-256 of its content, which each read checks. The archive is a folder, or a
bucket of a store that speaks S3. There a patch is one file, `<first two digits>/<SHA-256 of the patch>.patch.gz`.
`gunzip` shows it."""

from __future__ import annotations

import asyncio
import gzip
import logging
import zlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from state.change import NOW, Change, get, size
from state.errors import Damaged, Unavailable
from state.ids import patch_id
from state.private import private_file, sync_folder
from state.reads import Store, members
from state.records import OPEN, EndedRun, Status, UsedPatches

if TYPE_CHECKING:
    from obstore.store import ObjectStore


LONG_PATCH = 64 * 1024
"""Larger patches are packed and unpacked in a thread: 4 MiB take 0.2 s, too long for an event loop."""
MOST_BYTES = 16 * 1024 * 1024
"""Largest unpacked patch. A longer one is damaged."""


async def packed(patch: bytes | None) -> tuple[str | None, bytes | None]:
    """Digest and stored form of a patch."""
    if patch is None:
        return None, None
    packing = asyncio.to_thread(zlib.compress, patch) if len(patch) > LONG_PATCH else None
    return patch_id(patch), zlib.compress(patch) if packing is None else await packing


async def unpacked(names: Sequence[str | None], stored: Sequence[bytes | None]) -> list[bytes | None]:
    """The patches of these names; None where nothing is stored. Raises Damaged: one is not what its name says."""

    def unpack() -> list[bytes | None]:
        return [
            _checked(name, content) if name is not None and content is not None else None
            for name, content in zip(names, stored, strict=True)
        ]

    return await asyncio.to_thread(unpack) if sum(map(len, filter(None, stored))) > LONG_PATCH else unpack()


def _checked(name: str, content: bytes) -> bytes:
    try:
        patch = zlib.decompressobj().decompress(content, MOST_BYTES)
    except zlib.error:
        patch = None
    if patch_id(patch) != name:
        raise Damaged(
            f"the stored patch {name} is not the one that was registered: its content has another SHA-256",
            hint="register the right patch again, which puts it back; find out who else can write to this Redis",
        )
    assert patch is not None
    return patch


log = logging.getLogger(__name__)

BUCKET = "s3://"
_PROBE = b"This file shows that the archive takes and gives patches.\n"
_RETRIES = 2


class PatchFiles(Protocol):
    """Files by name in some place; each method blocks, and raises OSError (FileNotFoundError)."""

    def write(self, name: str, content: bytes) -> None: ...

    def read(self, name: str) -> bytes: ...


class Archive:
    """Patches that left Redis, each under its digest; every method blocks, so call it in a thread."""

    def __init__(self, place: str) -> None:
        self.place = place
        """An absolute folder, or `s3://BUCKET/PREFIX`."""
        self._files: PatchFiles | None = None

    def put(self, patch: bytes) -> None:
        """Keep a patch; returns once it can be read again. Raises Unavailable: the archive refuses it."""
        digest = str(patch_id(patch))
        try:
            self._open().write(_name(digest), gzip.compress(patch, mtime=0))
        except OSError as problem:
            raise self._unavailable("does not take a patch", problem) from problem
        self.get(digest)

    def get(self, digest: str) -> bytes:
        """The patch of this digest. Raises Unavailable: it is missing, unreadable or another."""
        try:
            patch = gzip.decompress(self._open().read(_name(digest)))
        except (OSError, EOFError, zlib.error) as problem:
            raise self._unavailable(f"does not give the patch {digest}", problem) from problem
        if patch_id(patch) != digest:
            raise self._unavailable(f"has another patch under the name {digest}")
        return patch

    def check(self) -> None:
        """Write a small file and read it. Raises Unavailable: that does not work."""
        self.put(_PROBE)

    def _open(self) -> PatchFiles:
        if self._files is None:
            self._files = (
                BucketFiles(self.place) if self.place.startswith(BUCKET) else FolderFiles(Path(self.place))
            )
        return self._files

    def _unavailable(self, what: str, problem: Exception | None = None) -> Unavailable:
        reason = "" if problem is None else f": {str(problem).splitlines()[0]}"
        return Unavailable(
            f"the archive {self.place} {what}{reason}",
            hint="an operator checks it with ./nightjar doctor (NIGHTJAR_ARCHIVE, and for s3:// the AWS_ variables)",
            retry_after=60,
        )


def archive_of(place: str | None) -> Archive | None:
    """The archive that a setting names."""
    return None if place is None else Archive(place)


def no_archive(digest: str) -> Unavailable:
    """The error for a patch in the archive, in a process without NIGHTJAR_ARCHIVE."""
    return Unavailable(
        f"the patch {digest} is in the lab's archive, and this process is not told where that is",
        hint="set NIGHTJAR_ARCHIVE as it was when the patch was moved",
    )


class FolderFiles:
    """A folder that all web and events processes of the lab share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, name: str, content: bytes) -> None:
        """The whole file or nothing, and on the disk."""
        path = self._folder / name
        path.parent.mkdir(exist_ok=True)
        with private_file(path, mode=0o666) as file:
            file.write(content)
        sync_folder(self._folder)

    def read(self, name: str) -> bytes:
        return (self._folder / name).read_bytes()


class BucketFiles:
    """A prefix of a bucket. The AWS_ variables, or the machine's role, give its address and the credentials."""

    def __init__(self, place: str) -> None:
        try:
            from obstore.store import from_url
        except ImportError as problem:
            raise Unavailable(
                "an archive in a bucket needs the package obstore", hint="install nightjar[s3]"
            ) from problem
        self._store: ObjectStore = from_url(place, retry_config={"max_retries": _RETRIES})

    def write(self, name: str, content: bytes) -> None:
        """One object."""
        import obstore

        try:
            obstore.put(self._store, name, content)
        except obstore.exceptions.BaseError as problem:
            raise OSError(str(problem)) from problem

    def read(self, name: str) -> bytes:
        import obstore

        try:
            return bytes(obstore.get(self._store, name).bytes())
        except obstore.exceptions.BaseError as problem:
            raise OSError(str(problem)) from problem


def _name(digest: str) -> str:
    return f"{digest[:2]}/{digest}.patch.gz"


PAGE = 1000
_FIELDS = ("finished_at", "diff_id", "sent_diff_id")
_LEFT: tuple[Status, ...] = ("discard", "crash", "timeout", "invalid", "retracted", "stopped", "lost")
"""Statuses of runs that nothing goes on from."""


class PatchArchiving(Store):
    """Moves patches of ended runs from Redis to the archive."""

    @property
    def can_leave(self) -> bool:
        """Whether the lab has an archive."""
        return self._lab.archive is not None

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
        """Copy patches to the archive; answers the digests that are there now. Damaged patches are left out.

        Raises:
            Unavailable: the archive does not take a patch; earlier ones are copied.
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

        async def decide(change: Change) -> bool:
            now_used, *sizes = await change.read(
                get(self._keys("patch_uses")), *(size(self._keys("diffs", digest)) for digest in digests)
            )
            if (now_used or "0") != uses:
                return False
            if there := [digest for digest, stored in zip(digests, sizes, strict=True) if stored]:
                change.delete(*(self._keys("diffs", digest) for digest in there))
                change.zadd(self._keys("archived"), dict.fromkeys(there, NOW))
                told = {"tag": tag, "patches": len(there), "bytes": sum(sizes)}
                change.emit("tag.patches_archived", tag, tag, told)
            return True

        return await self._lab.change(decide)

    async def _with_status(self, tag: str, status: str) -> AsyncIterator[list[EndedRun]]:
        index = self._lab.keys.status(tag, status, "")[0]
        offset = 0
        while True:
            (rows,) = await self._lab.read(
                members(self._lab, index, limit=PAGE, offset=offset, fields=_FIELDS)
            )
            yield [
                EndedRun(float(at or "inf"), frozenset(filter(None, digests)))
                for at, *digests in rows.values()
            ]
            if len(rows) < PAGE:
                return
            offset += PAGE

    async def _at_hand(self, page: Sequence[EndedRun]) -> list[EndedRun]:
        """The runs with the patches that are still in Redis."""
        digests = sorted({digest for ended in page for digest in ended.digests})
        found = await self._lab.pipeline([("EXISTS", self._lab.keys("diffs", digest)) for digest in digests])
        here = {digest for digest, is_here in zip(digests, found, strict=True) if is_here}
        return [EndedRun(ended.finished_at, ended.digests & here) for ended in page if ended.digests & here]
