"""Finds and ends every process of a training attempt by the stamp in its environment.

Process groups are not enough: a script may call setsid, and init adopts its orphans. Child processes inherit the
environment; a descendant that has cleared it is found as long as its parents live.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Container, Iterable

import psutil

from functions.process.ending import end_children, is_living
from functions.process.kinship import environment_of

STAMP = "NIGHTJAR_ATTEMPT"
"""Environment variable `<lab>/<gpu>/<experiment>/<attempt>/<fence>` of every process of an attempt."""

_PAUSE_S = 0.01


def processes_of(stamp_prefix: str) -> list[psutil.Process]:
    """Living processes whose stamp begins with these whole segments, and all their descendants.

    This process and its ancestors are left out.
    """
    return list(_found(stamp_prefix).values())


def signal_all(stamp_prefix: str, number: int, *, spare: Container[int] = ()) -> None:
    """Send one signal to all processes of the attempt, except the ids in `spare`."""
    _send((process for process in processes_of(stamp_prefix) if process.pid not in spare), number)


def kill_all(
    stamp_prefix: str,
    *,
    spare: Container[int] | None = None,
    awaited: int | None = None,
    timeout_s: float = 5.0,
) -> bool:
    """KILL the attempt's processes until none lives; False if one still lives after about `timeout_s`.

    `spare` is for a process that runs only this attempt and adopts its orphans: every descendant counts, also without
    the stamp, except the ids in `spare`; `awaited` is the child that its caller reaps. Blocks; a few milliseconds
    when there is nothing to kill.
    """
    deadline = time.monotonic() + timeout_s
    if spare is not None and not end_children(spare, awaited, deadline):
        return False
    # in the middle of an exec a process has no environment for a moment, but it is still a descendant
    looks = 2 if spare is None else 1
    known: dict[int, psutil.Process] = {}
    stopped: set[int] = set()
    while True:
        # descendants found before are remembered, since their parents may be gone
        known = {pid: p for pid, p in known.items() if _lives(p)} | _found(stamp_prefix)
        if spare is not None:
            known |= {p.pid: p for p in _descendants() if p.pid not in spare}
        if known:
            looks = 2
        else:
            looks -= 1
            if looks == 0:
                return True
        if time.monotonic() > deadline:
            _send(known.values(), signal.SIGKILL)
            return False
        # a fork bomb fills the place of each that is killed: first nobody may be left who forks
        newcomers = [process for pid, process in known.items() if pid not in stopped]
        _send(newcomers or known.values(), signal.SIGSTOP if newcomers else signal.SIGKILL)
        stopped = set(known)
        time.sleep(_PAUSE_S)


def _send(processes: Iterable[psutil.Process], number: int) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):  # it ended meanwhile, or is another user's
            process.send_signal(number)


def _descendants() -> list[psutil.Process]:
    return [process for process in psutil.Process().children(recursive=True) if _lives(process)]


def _found(stamp_prefix: str) -> dict[int, psutil.Process]:
    stamped = _stamped(stamp_prefix.strip("/"))
    if not stamped:
        return {}
    spared = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    others = [process for process in psutil.process_iter() if process.pid not in spared]
    found = {process.pid: process for process in others if process.pid in stamped}
    children: dict[int, list[psutil.Process]] = {}
    for process in others:
        children.setdefault(_parent(process), []).append(process)
    waiting = list(found)
    while waiting:
        for child in children.get(waiting.pop(), []):
            if child.pid not in found:
                found[child.pid] = child
                waiting.append(child.pid)
    return {pid: process for pid, process in found.items() if _lives(process)}


def _stamped(prefix: str) -> set[int]:
    """Ids of the processes with this stamp; reads /proc, because psutil takes ten times as long."""
    wanted = f"\0{STAMP}={prefix}".encode()
    found = set()
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        environment = b"\0" + (environment_of(int(pid)) or b"") + b"\0"
        if wanted + b"\0" in environment or wanted + b"/" in environment:
            found.add(int(pid))
    return found


def _parent(process: psutil.Process) -> int:
    try:
        return process.ppid()
    except psutil.Error:
        return -1


def _lives(process: psutil.Process) -> bool:
    return process.is_running() and is_living(process.pid)
