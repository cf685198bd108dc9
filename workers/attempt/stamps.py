"""Finds and ends every process of a training attempt by the stamp in its environment.

Process groups do not suffice: a script may call setsid, and its orphans are adopted by init. The environment
is inherited by whatever it starts; a descendant that cleared it is found as long as its parents live.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Container

import psutil

STAMP = "NIGHTJAR_ATTEMPT"
"""Environment variable `<lab>/<gpu>/<experiment>/<attempt>/<fence>` of every process of an attempt."""

_PAUSE_S = 0.01


def processes_of(stamp_prefix: str) -> list[psutil.Process]:
    """Living processes whose stamp begins with these whole segments, and all their descendants.

    This process and its ancestors are never among them.
    """
    return list(_found(stamp_prefix).values())


def signal_all(stamp_prefix: str, number: int, *, spare: Container[int] = ()) -> None:
    """Send one signal to everything of the attempt but the processes with these ids."""
    for process in processes_of(stamp_prefix):
        if process.pid in spare:
            continue
        try:
            process.send_signal(number)
        except psutil.Error:  # it ended meanwhile, or is another user's
            continue


def kill_all(stamp_prefix: str, *, timeout_s: float = 5.0) -> bool:
    """KILL what is left of the attempt, again and again until nothing lives; False if something still does.

    Blocks for about twenty milliseconds when there is little to do, and at most about `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    empty_looks = 0
    known: dict[int, psutil.Process] = {}
    while True:
        # descendants met before stay in view after their parents are gone
        known = {pid: p for pid, p in known.items() if _lives(p)} | _found(stamp_prefix)
        if known:
            empty_looks = 0
        else:
            empty_looks += 1
            if empty_looks == 2:  # a process in the middle of an exec shows no environment for a moment
                return True
        if time.monotonic() > deadline:
            return False
        for process in known.values():
            try:
                process.send_signal(signal.SIGKILL)
            except psutil.Error:
                continue
        time.sleep(_PAUSE_S)


def _found(stamp_prefix: str) -> dict[int, psutil.Process]:
    prefix = stamp_prefix.strip("/")
    spared = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    others = [process for process in psutil.process_iter() if process.pid not in spared]
    found = {process.pid: process for process in others if _carries(process, prefix)}
    if found:
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


def _carries(process: psutil.Process, prefix: str) -> bool:
    try:
        stamp = process.environ().get(STAMP, "")
    except (psutil.Error, OSError):
        return False
    return stamp == prefix or stamp.startswith(prefix + "/")


def _parent(process: psutil.Process) -> int:
    try:
        return process.ppid()
    except psutil.Error:
        return -1


def _lives(process: psutil.Process) -> bool:
    """A zombie has ended; only its exit status waits for its parent."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
