"""The descendants of this process, as Linux's /proc shows them, and their end: also of those that left its
session.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Container, Iterable, Iterator
from pathlib import Path

import psutil

# -- The threads, environment and descendants of a process, as Linux's /proc shows them.


def threads_of(pid: int) -> list[int]:
    """Threads that live, and the first one, which stays as a zombie until all others have ended."""
    try:
        return [int(thread) for thread in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def environment_of(pid: int) -> bytes | None:
    """The environment; empty: it has ended (its first thread then shows it to root alone). None: unreadable."""
    is_closed = False
    for thread in _first_then_others(pid):
        try:
            found = Path(f"/proc/{pid}/task/{thread}/environ").read_bytes()
        except (FileNotFoundError, ProcessLookupError):  # the thread has ended
            continue
        except OSError:
            is_closed = True
            continue
        if found:
            return found
    return None if is_closed else b""


def _first_then_others(pid: int) -> Iterator[int]:
    yield pid
    yield from (thread for thread in threads_of(pid) if thread != pid)


def children_of(pid: int) -> list[int]:
    """A process's children, by the kernel's own list where it keeps one: reading all of /proc may miss some."""
    found, is_told = list[int](), False
    for thread in threads_of(pid):
        with contextlib.suppress(OSError):  # the thread, or the process, has ended
            descriptor = os.open(f"/proc/{pid}/task/{thread}/children", os.O_RDONLY)
            with open(descriptor, "rb", buffering=0) as children:
                found += map(int, children.readall().split())
            is_told = True
    if not is_told:
        with contextlib.suppress(psutil.Error):
            return [child.pid for child in psutil.Process(pid).children()]
    return found


def descendants_of(pids: Iterable[int]) -> Iterator[int]:
    """Their children, the children of these, and so on."""
    waiting = [*pids]
    while waiting:
        found = children_of(waiting.pop())
        yield from found
        waiting += found


# -- Ends all descendants of this process, also those that left its session or lost their parents.

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
