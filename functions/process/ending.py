"""Ends whatever lives below this process: what has left its session or lost its parents too."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Container, Iterable

import psutil

from functions.process.kinship import children_of, threads_of

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Let the kernel give this process every descendant that loses its parent (Linux only)."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_children(spare: Container[int], awaited: int | None, deadline: float) -> bool:
    """Kill what is below until no child is left, which proves that nothing lives there; False at the deadline.

    A process that forks and ends all the time is gone whenever /proc is read, but it leaves children to this one.
    """
    while True:
        is_over = awaited is None or not is_living(awaited)
        left = [pid for pid in children_of(os.getpid()) if pid not in spare and pid != awaited]
        _stop_and_kill(left if is_over or awaited is None else [awaited, *left])
        for pid in left:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if is_over and not left:
            return True
        if time.monotonic() > deadline:
            return False


def is_living(pid: int) -> bool:
    """Whether any of its threads runs. Once the first has ended, the process shows as a zombie while others run."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE or len(threads_of(pid)) > 1
    except psutil.Error:
        return False


def _stop_and_kill(pids: Iterable[int]) -> None:
    """Kill these processes and what is below them; first each is stopped, since a fork bomb fills every gap at once.

    One that is stopped has all the children that it will ever have, and its id is no other's.
    """
    found = [*pids]
    for pid in found:
        _send(pid, signal.SIGSTOP)
        found += children_of(pid)
    for pid in found:
        _send(pid, signal.SIGKILL)


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
