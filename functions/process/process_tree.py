"""The threads, environment and descendants of a process, as Linux's /proc shows them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil


def threads_of(pid: int) -> list[int]:
    """Threads that live, and the first one, which stays as a zombie until all others have ended."""
    try:
        return [int(thread) for thread in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def environment_of(pid: int) -> bytes | None:
    """The environment, as any thread shows it. Empty for a process that has ended; None where it cannot be read.

    The first thread shows it to root alone once it has ended.
    """
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
