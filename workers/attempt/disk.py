"""The disk of attempts: free space, sizes of folders, and the kept folders of failed attempts."""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_log = logging.getLogger(__name__)

_MIB = 1024 * 1024
LARGEST_FILE = 16 * _MIB
"""Bytes of the largest file that is read whole, or copied for a run."""
_BLOCK = 512
_ENTRY = 512
"""Least number of bytes that an entry counts for: empty files fill a disk too."""


def free_mb(folder: Path) -> float:
    """MiB that this user may still write to the disk of a (future) folder. Raises OSError: unreadable."""
    place = folder.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    return shutil.disk_usage(place).free / _MIB


def bytes_on_disk(folder: Path, enough: float = math.inf) -> float:
    """Disk blocks of a folder, in bytes. It stops counting once it is over `enough`.

    Hard links count once. Symbolic links are not followed. Files that are deleted but still open are not counted.
    Infinite if a folder cannot be read: it is closed to its owner, or its path is too long.
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
    """Status of each entry below a folder; None for a folder that even its owner cannot read."""
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


def remove_tree(path: Path) -> None:
    """Remove a folder of ours, also one without permissions; links are not followed."""
    if path.is_symlink():  # chmod would follow it
        path.unlink()
        return
    with contextlib.suppress(RecursionError):
        shutil.rmtree(path, ignore_errors=True)
    if path.exists():  # without permissions, or too deep for Python's recursion
        for command in (("chmod", "-R", "--", "u+rwx"), ("rm", "-rf", "--")):
            subprocess.run([*command, str(path)], check=False, stderr=subprocess.DEVNULL)


@dataclass(frozen=True)
class KeptAttempts:
    """The kept folders of one slot, under `root`: for `for_s` seconds each, `most_bytes` together."""

    root: Path
    for_s: float
    most_bytes: float

    def keep(self, attempt: Path) -> Path | None:
        """Move an attempt's folder here, removing the oldest ones; None if it is too large or cannot be moved."""
        size = bytes_on_disk(attempt, self.most_bytes)
        if self.for_s <= 0 or size > self.most_bytes:
            return None
        place = self.root / attempt.name
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            _remove_repositories(attempt)
            self._make_room(self.most_bytes - size)
            attempt.rename(place)
            os.utime(place)  # its age counts from now; the script may have set any time
        except OSError as error:
            _log.warning("the folder of a failed attempt is not kept: %s", error)
            return None
        return place

    def expire(self) -> None:
        for folder in self._oldest_first():
            if time.time() - folder.lstat().st_mtime >= self.for_s:
                remove_tree(folder)

    def _make_room(self, most_bytes: float) -> None:
        self.expire()
        folders = self._oldest_first()
        sizes = {folder: bytes_on_disk(folder) for folder in folders}
        while folders and sum(sizes[folder] for folder in folders) > most_bytes:
            remove_tree(folders.pop(0))

    def _oldest_first(self) -> list[Path]:
        if not self.root.is_dir():
            return []
        return sorted(self.root.iterdir(), key=lambda folder: folder.lstat().st_mtime)


def _remove_repositories(attempt: Path) -> None:
    """Remove git repositories, whose configuration can name programs. Raises OSError: one stays."""
    for place, folders, files in os.walk(attempt):
        inside = {*folders, *files}
        found = {".git"} & inside
        if {"objects", "refs"} <= inside or "commondir" in inside:  # a bare repository
            found |= {"HEAD"} & inside
        folders[:] = [name for name in folders if name not in found]
        if found:
            Path(place).chmod(0o700)
        for name in found:
            repository = Path(place, name)
            if repository.is_dir():
                remove_tree(repository)
            else:
                repository.unlink()
            if repository.exists():
                raise OSError(errno.EPERM, "it could not be removed", str(repository))
