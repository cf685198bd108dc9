"""Ends stopped processes (SIGSTOP) below a worker, which would hold a GPU for ever."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass

import psutil

from functions.process.kinship import descendants_of


@dataclass(frozen=True)
class _Standstill:
    since: float
    cpu_s: float


class Standstills:
    """The stopped processes below some processes, and since when they are stopped.

    Processes that a debugger holds do not count; their run still has its time limit.
    """

    def __init__(self, silent_s: float) -> None:
        self._silent_s = silent_s
        self._known: dict[psutil.Process, _Standstill] = {}

    def end(self, roots: Iterable[int], now: float) -> list[int]:
        """KILL every descendant of these processes that has been stopped for too long; answers their pids.

        `now`: seconds of a monotonic clock.
        """
        seen = {process: found for process in _below(roots) if (found := _standstill(process, now))}
        # a process that used some CPU was continued and stopped again, as a CPU limiter does
        self._known = {
            process: known
            if (known := self._known.get(process)) is not None and known.cpu_s == found.cpu_s
            else found
            for process, found in seen.items()
        }
        late = [p for p, found in self._known.items() if now - found.since >= self._silent_s]
        return [process.pid for process in late if _kill(process)]


def _below(roots: Iterable[int]) -> set[psutil.Process]:
    found: set[psutil.Process] = set()
    for pid in descendants_of(roots):
        with contextlib.suppress(psutil.Error):
            found.add(psutil.Process(pid))
    return found


def _standstill(process: psutil.Process, now: float) -> _Standstill | None:
    try:
        if process.status() != psutil.STATUS_STOPPED:
            return None
        times = process.cpu_times()
    except psutil.Error:
        return None
    return _Standstill(now, times.user + times.system)


def _kill(process: psutil.Process) -> bool:
    try:
        process.kill()
    except psutil.Error:
        return False
    return True
