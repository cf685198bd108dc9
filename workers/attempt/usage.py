"""Processes, memory, CPU seconds and disk of runs; the memory of their machine; the kept folders of failed runs."""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import resource
import shutil
import stat
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from functions.formats.metrics_block import FailureKind
from functions.kernel.process.ending import children_of

_MIB = 1024 * 1024
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True)
class Ceilings:
    """Limits of what a run may take at once. A run over one of them is ended."""

    disk_bytes: float = math.inf
    processes: float = math.inf
    memory_bytes: float = math.inf


@dataclass(frozen=True)
class Excess:
    """A limit that a run has exceeded."""

    kind: FailureKind
    reason: str


def excess_of_disk(found: float, allowed: float) -> Excess | None:
    """For bytes of a run's files."""
    if found <= allowed:
        return None
    allowing = f"the worker allows {_mb(allowed)} (NIGHTJAR_RUN_DISK_MB)"
    if found == math.inf:
        return Excess(
            "disk", f"its files cannot be measured: a folder is closed, or its path is too long; {allowing}"
        )
    return Excess("disk", f"its files took at least {_mb(found)} of the disk; {allowing}")


class CpuSeconds:
    """CPU seconds of a run's processes.

    The kernel adds up the processes that were waited for, and misses the others. The sum of the last looks at all
    processes counts if it is larger.
    """

    def __init__(self) -> None:
        self._before = waited_for()
        self._seen: dict[psutil.Process, float] = {}

    def look(self, pids: Iterable[int]) -> None:
        """Note what these processes have used so far."""
        for pid in pids:
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                times = process.cpu_times()
                self._seen[process] = times.user + times.system

    @property
    def total(self) -> float:
        """Seconds so far; complete once every process of the run has ended and was waited for."""
        return max(waited_for() - self._before, math.fsum(list(self._seen.values())))


def excess_of(pids: Sequence[int], ceilings: Ceilings) -> Excess | None:
    if len(pids) > ceilings.processes:
        return Excess(
            "killed",
            f"it had at least {len(pids):,} processes at once; the worker allows {ceilings.processes:,.0f}",
        )
    taken = memory_of(pids, ceilings.memory_bytes)
    if taken > ceilings.memory_bytes:
        return Excess(
            "oom",
            f"it took {_mb(taken)} of memory; the worker allows {_mb(ceilings.memory_bytes)}"
            " (NIGHTJAR_RUN_MEMORY_MB)",
        )
    return None


def memory_of(pids: Sequence[int], enough: float) -> int:
    """Bytes of RSS of processes; if over `enough`, of PSS, which counts shared pages once and takes long."""
    resident = sum(_resident(pid) for pid in pids)
    return resident if resident <= enough else sum(_own_share(pid) for pid in pids)


def machine_bytes() -> int:
    """The memory of this machine, or of the container that we are in."""
    total = psutil.virtual_memory().total
    for place in _CGROUP_LIMITS:
        with contextlib.suppress(OSError, ValueError):  # there is none, or it is `max`
            total = min(total, int(Path(place).read_text()))
    return total


def threads_here() -> int:
    """Threads on this machine; 0 where the kernel does not report them."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    return 0


def below(roots: Iterable[int], allowed: float) -> list[int]:
    """These processes and their descendants. It stops once there are more than `allowed`: a fork bomb has no end."""
    found = [*roots]
    for pid in found:
        if len(found) > allowed:
            break
        found += children_of(pid)
    return found


def waited_for() -> float:
    """CPU seconds of the processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _resident(pid: int) -> int:
    with contextlib.suppress(psutil.Error):
        return int(psutil.Process(pid).memory_info().rss)
    return 0  # it has ended


def _own_share(pid: int) -> int:
    """PSS in bytes, or RSS where the kernel does not report PSS."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return _resident(pid)


def _mb(size: float) -> str:
    return f"{size / _MIB:,.0f} MB"


_log = logging.getLogger(__name__)

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
