"""Which processes descend from which, as Linux's /proc tells."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator

import psutil


def children_of(pid: int) -> list[int]:
    """A process's children, by the kernel's own list where it keeps one: reading all of /proc may miss some."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        threads = []
    found, is_told = list[int](), False
    for thread in threads:
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
