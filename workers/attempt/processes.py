"""Finds and ends the processes of attempts.

Every process of an attempt has its label in the environment. Process groups are not enough: a script may call
setsid, and init adopts its orphans. Child processes inherit the environment. A descendant that has cleared it is
found as long as its parents live; after that, `Orphans` finds it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
import time
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from functions.kernel.process.ending import (
    adopt_orphans,
    children_of,
    descendants_of,
    end_children,
    environment_of,
    is_living,
    threads_of,
)

ATTEMPT = "NIGHTJAR_ATTEMPT"
"""Environment variable with the label of an attempt: `<lab>/<gpu>/<experiment>/<attempt>/<fence>`."""
MARK = "NIGHTJAR_OWN"
"""Environment variable that all processes of a worker inherit. Runs do not have it."""

_PAUSE_S = 0.01
_KILL_S = 5.0
"""Seconds to try to kill processes."""
_REAP_AFTER_S = 60.0
"""Seconds after which a zombie must be an orphan: the owner of a process of ours reaps it sooner."""
_FLAGS, _PF_EXITING = 9, 0x4
"""Field `flags` of /proc/PID/stat (proc(5)), and the kernel's flag of a thread that has begun to end."""
_ENV_START = 50
"""Field `env_start` of /proc/PID/stat. It is 0 until an exec has set up the environment."""

_log = logging.getLogger(__name__)


def processes_of(prefix: str) -> list[psutil.Process]:
    """Living processes whose label begins with these segments, and descendants; not this one and its ancestors."""
    return list(_found(prefix).values())


def signal_all(prefix: str, number: int, *, spare: Container[int] = ()) -> None:
    """Send one signal to all processes of the attempt, except the ids in `spare`."""
    _send((process for process in processes_of(prefix) if process.pid not in spare), number)


def kill_all(prefix: str, *, spare: Container[int] | None = None, awaited: int | None = None) -> bool:
    """KILL the attempt's processes until none lives; False if one still lives after about 5 s.

    A process that runs only this attempt and adopts its orphans passes `spare`. Then all its descendants are killed,
    with or without the label, except the ids in `spare`. `awaited` is the child that the caller reaps. Blocks;
    takes a few milliseconds when there is nothing to kill.
    """
    deadline = time.monotonic() + _KILL_S
    if spare is not None and not end_children(spare, awaited, deadline):
        return False
    # in the middle of an exec a process has no environment for a moment, but it is still a descendant
    looks = 2 if spare is None else 1
    known: dict[int, psutil.Process] = {}
    stopped: set[int] = set()
    while True:
        # descendants found before are remembered, since their parents may be gone
        known = {pid: p for pid, p in known.items() if _lives(p)} | _found(prefix)
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


def _found(prefix: str) -> dict[int, psutil.Process]:
    labelled = _labelled(prefix.strip("/"))
    if not labelled:
        return {}
    spared = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    others = [process for process in psutil.process_iter() if process.pid not in spared]
    found = {process.pid: process for process in others if process.pid in labelled}
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


def _labelled(prefix: str) -> set[int]:
    """Ids of the processes with this label. Reads /proc, because psutil takes ten times as long."""
    wanted = f"\0{ATTEMPT}={prefix}".encode()
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


class Orphans:
    """Processes that runs have left, adopted by this process or by its parent, if that is one of ours.

    A process of a run may leave its session, lose its parents and clear its environment. While its horse lives, the
    horse adopts it. If the horse is killed, the keeper adopts it, and after the keeper the supervisor. Processes of
    the worker inherit a secret mark (`MARK`), so an adopted child without it comes from a run.
    """

    def __init__(self) -> None:
        adopt_orphans()
        inherited = os.environ.get(MARK)
        self._mark = os.environ[MARK] = inherited or secrets.token_hex(16)
        self._wanted = f"\0{MARK}={self._mark}\0".encode()
        self._parent = os.getppid() if inherited else None
        shown = [os.getpid(), *([self._parent] if self._parent else [])]
        self._of_forks = {environment_of(pid) for pid in shown}
        """Environments that a fork shows before it has set its own, or has become another program."""
        self._ended = dict[int, float]()
        """Zombies among our children, with the time after which we may reap each."""

    def end(self) -> bool:
        """Kill them until none is left; False if one still lives after about 5 s."""
        give_up = time.monotonic() + _KILL_S
        killed = set[int]()
        while True:
            family = [*children_of(os.getpid()), *([] if self._parent is None else children_of(self._parent))]
            known = {pid: self._is_ours(pid) for pid in family if is_living(pid)}
            orphans = {pid for pid, is_ours in known.items() if is_ours is False}
            for pid in orphans - killed:
                _log.warning("process %d, which a run has left, is killed", pid)
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            killed |= orphans
            self._reap(killed)
            if all(known.values()):
                return True
            if time.monotonic() > give_up:
                return False
            time.sleep(_PAUSE_S)

    def end_all(self, spare: Container[int]) -> bool:
        """Kill all children that are not spared, also those of the worker itself."""
        return end_children(spare, None, time.monotonic() + _KILL_S)

    def _is_ours(self, pid: int) -> bool | None:
        """Whether a living process is one of ours; None while that is not known yet."""
        environment = environment_of(pid)
        if environment is None:  # it hides itself, which none of ours does, or is about to end
            return None if _is_ending(pid) else False
        if environment:
            return environment in self._of_forks or self._wanted in b"\0" + environment + b"\0"
        return False if _is_a_program(pid) and not environment_of(pid) else None

    def _reap(self, killed: Iterable[int]) -> None:
        """Reap orphans that have ended. A process of ours is reaped by its owner, who needs its exit status."""
        now = time.monotonic()
        ended = [pid for pid in children_of(os.getpid()) if not is_living(pid)]
        self._ended = {pid: self._ended.get(pid, now + _REAP_AFTER_S) for pid in ended}
        self._ended |= dict.fromkeys(killed, now)
        for pid in [pid for pid, at in self._ended.items() if at <= now]:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _is_a_program(pid: int) -> bool:
    """False in the middle of an exec, and for a process that has ended."""
    return any(start != 0 for start in _stat_of_threads(pid, _ENV_START))


def _is_ending(pid: int) -> bool:
    """Whether all its threads have begun to end. From then on Linux hides the environment from ordinary users."""
    return all(flags & _PF_EXITING for flags in _stat_of_threads(pid, _FLAGS))


def _stat_of_threads(pid: int, field: int) -> Iterator[int]:
    """A field of /proc/PID/stat (proc(5)), which counts from 1, for every thread that is still there."""
    for thread in threads_of(pid):
        with contextlib.suppress(OSError):
            stat = Path(f"/proc/{pid}/task/{thread}/stat").read_text(errors="replace")
            yield int(stat.rpartition(")")[2].split()[field - 3])


@dataclass(frozen=True)
class _Stop:
    since: float
    cpu_s: float


class StoppedProcesses:
    """Kills descendants that stay stopped (SIGSTOP) and hold a GPU, except those of a debugger."""

    def __init__(self, silent_s: float) -> None:
        self._silent_s = silent_s
        self._known: dict[psutil.Process, _Stop] = {}

    def end(self, roots: Iterable[int], now: float) -> list[int]:
        """KILL descendants stopped for too long at `now`, a monotonic clock; answers their pids."""
        seen = {process: found for process in _below(roots) if (found := _stop_of(process, now))}
        # a process that used some CPU was continued and stopped again, as a CPU limiter does
        self._known = {
            process: known
            if (known := self._known.get(process)) is not None and known.cpu_s == found.cpu_s
            else found
            for process, found in seen.items()
        }
        late = [p for p, found in self._known.items() if now - found.since >= self._silent_s]
        return [process.pid for process in late if _kill(process)]


def _below(roots: Iterable[int]) -> set[psutil.Process]:
    found: set[psutil.Process] = set()
    for pid in descendants_of(roots):
        with contextlib.suppress(psutil.Error):
            found.add(psutil.Process(pid))
    return found


def _stop_of(process: psutil.Process, now: float) -> _Stop | None:
    try:
        if process.status() != psutil.STATUS_STOPPED:
            return None
        times = process.cpu_times()
    except psutil.Error:
        return None
    return _Stop(now, times.user + times.system)


def _kill(process: psutil.Process) -> bool:
    try:
        process.kill()
    except psutil.Error:
        return False
    return True
