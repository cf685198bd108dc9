"""Files that no other user may read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def private_file(path: Path, *, once: bool = False) -> Iterator[BinaryIO]:
    """A file that appears when it is whole and on the disk. Only its owner may read it.

    With `once`, an existing file stays, also one that another process makes at the same time.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if once:
            with contextlib.suppress(FileExistsError):
                os.link(draft, path)
        else:
            draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    sync_folder(path.parent)


def write_private(path: Path, text: str, *, once: bool = False) -> None:
    with private_file(path, once=once) as file:
        file.write(f"{text}\n".encode())


def sync_folder(folder: Path) -> None:
    """Have the names in a folder written to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
