"""Starts a training process: ties it to its worker, sets its limits, confines it, then execs the command.

    python -I -S launch.py <worker's pid> <name=limit,...> <reach, as JSON> <program> <argument>...

The reach has the fields of `confine.Reach`; without one (an empty word) the process is not confined.

This is a program and not a `preexec_fn`, because Python code between fork and exec can deadlock when
the worker has threads. It is run by path and imports only the standard library.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LIMITS = {"core": resource.RLIMIT_CORE, "fsize": resource.RLIMIT_FSIZE, "nofile": resource.RLIMIT_NOFILE}


def main(worker_pid: int, limits: str, reach: str, command: list[str]) -> None:
    """Never returns: execs the command, or exits with 127 and writes the reason to stderr."""
    die_with(worker_pid)
    for limit in filter(None, limits.split(",")):
        name, _, value = limit.partition("=")
        _, hard = resource.getrlimit(_LIMITS[name])
        number = int(value) if hard == resource.RLIM_INFINITY else min(int(value), hard)
        resource.setrlimit(_LIMITS[name], (number, number))
    for number in signal.valid_signals():  # background shells and Python ignore some, and exec keeps that
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    try:
        if reach:
            confine_to(reach)
        os.execvpe(command[0], command, os.environ)
    except OSError as error:
        sys.stderr.write(f"nightjar: cannot start {command[0]!r}: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(127)


def die_with(worker_pid: int) -> None:
    """Make the kernel kill this process when the worker dies, also by kill -9 (Linux only)."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != worker_pid:  # the worker died before prctl
        os._exit(137)


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants, so that they can be found (Linux only)."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def confine_to(reach: str) -> None:
    """Confine this process; `reach` has the fields of confine.Reach as JSON.

    Raises:
        OSError: as confine.confine.
    """
    import importlib
    import json

    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    confining = importlib.import_module("confine")
    sys.path.pop(0)
    confining.confine(confining.Reach(**json.loads(reach)))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:])
