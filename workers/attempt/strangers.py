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
from collections.abc import Container, Iterable
from pathlib import Path

from functions.process.ending import end_children, is_living
from functions.process.kinship import children_of, environment_of, threads_of
from workers.attempt.launch import adopt_orphans

MARK = "NIGHTJAR_OWN"
"""Variable that all processes of a worker inherit, and runs do not."""

_PAUSE_S = 0.01
_REAPED_S = 60.0
"""Seconds after which only an orphan is still not reaped: a process of ours that is silent for less is killed."""
_ENV_START = 50
"""Field of /proc/PID/stat, by its number in proc(5); 0 until an exec has got so far."""

_log = logging.getLogger(__name__)


class Strangers:
    """The adopted children of this process, and of its parent if that is one of ours."""

    def __init__(self) -> None:
        adopt_orphans()
        inherited = os.environ.get(MARK)
        self._mark = os.environ[MARK] = inherited or secrets.token_hex(16)
        self._wanted = f"\0{MARK}={self._mark}\0".encode()
        self._parent = os.getppid() if inherited else None
        shown = [os.getpid(), *([self._parent] if self._parent else [])]
        self._of_forks = {environment_of(pid) for pid in shown}
        """What a fork shows until it tells its own environment, or becomes another program."""
        self._ended = dict[int, float]()
        """Zombies among our children, each with the time from which on we may reap it."""

    def end(self, *, patience_s: float = 5.0) -> bool:
        """Kill them until none is left; False if one still lives after `patience_s`."""
        give_up = time.monotonic() + patience_s
        killed = set[int]()
        while True:
            family = [*children_of(os.getpid()), *([] if self._parent is None else children_of(self._parent))]
            known = {pid: self._is_ours(pid) for pid in family if is_living(pid)}
            strangers = {pid for pid, is_ours in known.items() if is_ours is False}
            for pid in strangers - killed:
                _log.warning("process %d, which a run has left, is killed", pid)
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            killed |= strangers
            self._reap(killed)
            if all(known.values()):
                return True
            if time.monotonic() > give_up:
                return False
            time.sleep(_PAUSE_S)

    def end_all(self, spare: Container[int], *, patience_s: float = 5.0) -> bool:
        """The same with all children that are not spared: the orphans of our own, too, which may leave others."""
        return end_children(spare, None, time.monotonic() + patience_s)

    def _is_ours(self, pid: int) -> bool | None:
        """Whether a living process is one of ours; None while that cannot be told."""
        environment = environment_of(pid)
        if environment is None:  # it hides itself, which none of ours does, or has ended meanwhile
            return False if is_living(pid) else None
        if environment:
            return environment in self._of_forks or self._wanted in b"\0" + environment + b"\0"
        return False if _is_a_program(pid) and not environment_of(pid) else None

    def _reap(self, killed: Iterable[int]) -> None:
        """Reap orphans that have ended. Each of our own is reaped by its owner, who needs its exit status."""
        now = time.monotonic()
        ended = [pid for pid in children_of(os.getpid()) if not is_living(pid)]
        self._ended = {pid: self._ended.get(pid, now + _REAPED_S) for pid in ended}
        self._ended |= dict.fromkeys(killed, now)
        for pid in [pid for pid, at in self._ended.items() if at <= now]:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _is_a_program(pid: int) -> bool:
    """False in the middle of an exec, and for a process that has ended."""
    for thread in threads_of(pid):
        with contextlib.suppress(OSError):  # the thread has ended
            stat = Path(f"/proc/{pid}/task/{thread}/stat").read_text(errors="replace")
            if int(stat.rpartition(")")[2].split()[_ENV_START - 3]) != 0:
                return True
    return False
