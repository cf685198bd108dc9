"""How much of a disk is free, and how much of it a folder takes."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

_MIB = 1024 * 1024
_BLOCK = 512
_ENTRY = 512
"""Bytes that every entry counts for at least: empty files fill a disk too."""


def free_mb(folder: Path) -> float:
    """MiB that the disk of a folder has left for us, whether the folder is there yet or not.

    Raises:
        OSError: the disk does not tell.
    """
    place = folder.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    return shutil.disk_usage(place).free / _MIB


def bytes_on_disk(folder: Path, enough: float = float("inf")) -> int:
    """Bytes that a folder takes, as blocks on its disk; stops counting once it is over `enough`.

    Sparse files count what is written of them, hard links count once, links are not followed, and what vanishes
    meanwhile counts nothing. A file that is deleted but still open cannot be seen.
    """
    total = 0
    linked: set[tuple[int, int]] = set()
    for status in _entries(folder):
        if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
            if (status.st_dev, status.st_ino) in linked:
                continue
            linked.add((status.st_dev, status.st_ino))
        total += max(_ENTRY, status.st_blocks * _BLOCK)
        if total > enough:
            break
    return total


def _entries(folder: Path) -> Iterator[os.stat_result]:
    waiting = [str(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    try:
                        yield entry.stat(follow_symlinks=False)
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(entry.path)
                    except OSError:
                        continue
        except OSError:
            continue
