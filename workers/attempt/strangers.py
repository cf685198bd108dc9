"""Ends what runs have left to the processes that look after them.

A run's process may cut every tie: leave its session, lose its parents, clear its environment. While its horse lives,
the horse adopts it; if that is killed, the keeper does, and after the keeper the supervisor. Their own processes
inherit a secret mark, so what they have adopted of a run is known by having none.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
import time
from collections import Counter
from collections.abc import Container, Iterable
from pathlib import Path

from functions.process.ending import end_children
from functions.process.kinship import children_of
from workers.attempt.launch import adopt_orphans

MARK = "NIGHTJAR_OWN"
"""Variable that all processes of a worker inherit, and runs do not."""

_LOOKS = 3
_PAUSE_S = 0.01

_log = logging.getLogger(__name__)


class Strangers:
    """The adopted children of this process, and of its parent if that is one of ours."""

    def __init__(self) -> None:
        adopt_orphans()
        inherited = os.environ.get(MARK)
        self._mark = os.environ[MARK] = inherited or secrets.token_hex(16)
        self._wanted = f"\0{MARK}={self._mark}\0".encode()
        self._parent = os.getppid() if inherited else None
        self._ours = set[int]()

    def end(self, *, patience_s: float = 5.0) -> bool:
        """Kill them until none is left; False if one still lives after `patience_s`."""
        give_up = time.monotonic() + patience_s
        looks = Counter[int]()
        while True:
            mine = [pid for pid in children_of(os.getpid()) if not self._is_ours(pid)]
            others = [] if self._parent is None else children_of(self._parent)
            left = [*mine, *(pid for pid in others if _lives(pid) and not self._is_ours(pid))]
            if not left:
                return True
            if time.monotonic() > give_up:
                return False
            looks.update(left)
            # in the middle of its exec one of ours has no mark, and one that has just ended is reaped by its owner
            _kill([pid for pid in left if looks[pid] >= _LOOKS])
            time.sleep(_PAUSE_S)

    def end_all(self, spare: Container[int], *, patience_s: float = 5.0) -> bool:
        """The same with all children that are not spared: the orphans of our own, too, which may leave others."""
        return end_children(spare, None, time.monotonic() + patience_s)

    def _is_ours(self, pid: int) -> bool:
        """Whether a child has the mark, or had it when it lived."""
        try:
            if self._wanted in b"\0" + Path(f"/proc/{pid}/environ").read_bytes() + b"\0":
                self._ours.add(pid)
                return True
        except OSError:  # it has ended, or hides itself, which none of ours does
            pass
        if pid in self._ours and not _lives(pid):
            return True
        self._ours.discard(pid)
        return False


def _kill(pids: Iterable[int]) -> None:
    """Kill, and reap what has ended: until it is reaped, a process stands among its parent's children."""
    for pid in pids:
        if _lives(pid):
            _log.warning("process %d, which a run has left, is killed", pid)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _lives(pid: int) -> bool:
    return _state(pid) not in ("", "Z", "X")


def _state(pid: int) -> str:
    """The letter of its state; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return ""
