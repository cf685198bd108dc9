"""Which processes descend from which, and which of them holds a connection (Linux's /proc)."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import psutil

LOOKS, BETWEEN_LOOKS_S = 20, 0.01
"""A process that ends is unreadable for less than this."""


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


def is_held_below(ancestors: Collection[int], here: int, there: int) -> bool:
    """Whether a descendant of these processes holds the TCP connection from the port `here` to the port `there`.

    Also true where this cannot be found out: the connection is closed, or a descendant's open files stay unreadable.
    """
    for _ in range(LOOKS):
        held = _look(ancestors, here, there)
        if held is not None:
            return held
        time.sleep(BETWEEN_LOOKS_S)
    return True


def _look(ancestors: Collection[int], here: int, there: int) -> bool | None:
    """One look; None where it cannot tell: what it looks at changes while it reads."""
    wanted = {f"socket:[{inode}]" for inode in _inodes(here, there)}
    if not wanted:
        return None
    unreadable = False
    for pid in descendants_of(ancestors):
        for thread in Path(f"/proc/{pid}/task").glob(
            "*"
        ):  # what threads hold outlives their process's first thread
            try:
                with os.scandir(thread / "fd") as files:
                    if any(_target(file.path) in wanted for file in files):
                        return True
            except PermissionError:
                unreadable = unreadable or not _has_ended(thread)
            except (FileNotFoundError, ProcessLookupError):
                continue
    return None if unreadable else False


def _has_ended(thread: Path) -> bool:
    """Whether a thread holds nothing any more and only its exit status is left."""
    try:
        return (thread / "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def _inodes(here: int, there: int) -> Iterator[str]:
    """The sockets between two local ports that some process holds."""
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(FileNotFoundError):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                _, local, remote, *rest = line.split()
                inode = rest[6]
                if local.endswith(f":{here:04X}") and remote.endswith(f":{there:04X}") and inode != "0":
                    yield inode


def _target(link: str) -> str:
    try:
        return os.readlink(link)
    except OSError:  # closed meanwhile
        return ""
