"""Keeps the folders of failed attempts for a while, so that people can look into them."""

from __future__ import annotations

import errno
import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path

from workers.attempt.disk import bytes_on_disk
from workers.attempt.worktree import remove_tree

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Kept:
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
        """Remove the folders older than `for_s`."""
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
    """Remove whatever git would take for a repository: its configuration can name programs, which git runs.

    Raises:
        OSError: one of them stays.
    """
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
