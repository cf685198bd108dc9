"""Free space of a disk, and the space that a folder takes."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

_MIB = 1024 * 1024
LARGEST_FILE = 16 * _MIB
"""Bytes of the largest file that is read whole, or copied for a run."""
_BLOCK = 512
_ENTRY = 512
"""Least number of bytes that an entry counts for: empty files fill a disk too."""


def free_mb(folder: Path) -> float:
    """MiB that this user may still write to the disk of a folder, which need not exist yet.

    Raises:
        OSError: the disk cannot be read.
    """
    place = folder.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    return shutil.disk_usage(place).free / _MIB


def bytes_on_disk(folder: Path, enough: float = math.inf) -> float:
    """Bytes of disk blocks that a folder takes; stops counting once it is over `enough`.

    Hard links count once. Symbolic links are not followed. Files that are deleted but still open are not seen.
    Infinite where a folder in it cannot be read: it is closed to its owner, or its path is too long.
    """
    total = 0
    linked: set[tuple[int, int]] = set()
    for status in _entries(folder):
        if status is None:
            return math.inf
        if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
            if (status.st_dev, status.st_ino) in linked:
                continue
            linked.add((status.st_dev, status.st_ino))
        total += max(_ENTRY, status.st_blocks * _BLOCK)
        if total > enough:
            break
    return total


def _entries(folder: Path) -> Iterator[os.stat_result | None]:
    """What lies below a folder; None for what cannot be read, not even its owner."""
    waiting = [str(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        yield entry.stat(follow_symlinks=False)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except (FileNotFoundError, NotADirectoryError):  # it was removed meanwhile
            continue
        except OSError:
            yield None
