"""The archive of a lab's old patches: a folder, or a bucket of a store that speaks S3.

A patch is one file, `<first two digits>/<SHA-256 of the patch>.patch.gz`: gunzip shows it, and its name is its proof.
"""

from __future__ import annotations

import gzip
import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from state.digests import patch_id
from state.errors import Unavailable

if TYPE_CHECKING:
    from obstore.store import ObjectStore

BUCKET = "s3://"
_PROBE = b"This file shows that the archive takes and gives patches.\n"
_RETRIES = 2


class Files(Protocol):
    """Files by name in some place; each method blocks.

    Raises:
        OSError: the place does not take it, or does not have it (FileNotFoundError).
    """

    def write(self, name: str, content: bytes) -> None: ...

    def read(self, name: str) -> bytes: ...


class Archive:
    """Patches that left Redis, each under its digest; every method blocks, so call it in a thread."""

    def __init__(self, place: str) -> None:
        self.place = place
        """An absolute folder, or `s3://BUCKET/PREFIX`."""
        self._files: Files | None = None

    def put(self, patch: bytes) -> None:
        """Keep a patch; returns once it can be read again.

        Raises:
            Unavailable: the archive does not take it.
        """
        digest = str(patch_id(patch))
        try:
            self._open().write(_name(digest), gzip.compress(patch, mtime=0))
        except OSError as problem:
            raise self._unavailable("does not take a patch", problem) from problem
        self.get(digest)

    def get(self, digest: str) -> bytes:
        """The patch of this digest.

        Raises:
            Unavailable: it is not there, cannot be read, or is not what its name says.
        """
        try:
            patch = gzip.decompress(self._open().read(_name(digest)))
        except (OSError, EOFError, zlib.error) as problem:
            raise self._unavailable(f"does not give the patch {digest}", problem) from problem
        if patch_id(patch) != digest:
            raise self._unavailable(f"has another patch under the name {digest}")
        return patch

    def check(self) -> None:
        """Write a small file and read it.

        Raises:
            Unavailable: that does not work.
        """
        self.put(_PROBE)

    def _open(self) -> Files:
        if self._files is None:
            self._files = Bucket(self.place) if self.place.startswith(BUCKET) else Folder(Path(self.place))
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
    """A patch has left Redis, and this process is not told where to."""
    return Unavailable(
        f"the patch {digest} is in the lab's archive, and this process is not told where that is",
        hint="set NIGHTJAR_ARCHIVE as it was when the patch was moved",
    )


class Folder:
    """A folder that all web and events processes of the lab share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, name: str, content: bytes) -> None:
        """The whole file or nothing, and on the disk."""
        path = self._folder / name
        path.parent.mkdir(exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with draft.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
        for folder in (path.parent, self._folder):
            handle = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)

    def read(self, name: str) -> bytes:
        """A file's content."""
        return (self._folder / name).read_bytes()


class Bucket:
    """A prefix of a bucket; where and who we are say the AWS_ variables, or the machine's own role."""

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
        """An object's content."""
        import obstore

        try:
            return bytes(obstore.get(self._store, name).bytes())
        except obstore.exceptions.BaseError as problem:
            raise OSError(str(problem)) from problem


def _name(digest: str) -> str:
    return f"{digest[:2]}/{digest}.patch.gz"
