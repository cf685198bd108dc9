"""Processes, memory and CPU seconds of a run, and the memory and threads of its machine."""

from __future__ import annotations

import contextlib
import math
import resource
from collections.abc import Iterable, Sequence
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
