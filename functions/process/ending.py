"""Ends all descendants of this process, also those that left its session or lost their parents."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Container, Iterable

import psutil

from functions.process.process_tree import children_of, threads_of

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Let the kernel give this process every descendant that loses its parent (Linux only)."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_children(spare: Container[int], awaited: int | None, deadline: float) -> bool:
    """Kill descendants until no child is left. False at the deadline.

    No child proves that nothing lives there: a process that keeps forking escapes a read of /proc, but leaves
    children to this process.
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
    """Whether any of its threads runs. A process whose first thread has ended shows as a zombie while others run."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE or len(threads_of(pid)) > 1
    except psutil.Error:
        return False


def _stop_and_kill(pids: Iterable[int]) -> None:
    """Kill these processes and their descendants. Each is stopped first, since a fork bomb fills every gap at once.

    A stopped process gets no more children, and its id stays its own.
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
