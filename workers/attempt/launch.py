"""Starts a training process: ties it to its worker, sets its limits, confines it, then execs the command.

    python -I -S launch.py <worker's pid> <name=limit,...> <reach> <descriptor> <program> <argument>...

The reach is a packed `isolation.Reach`. An empty word means no confinement. If the reach names a bubblewrap, this
process becomes bubblewrap, and the command starts in namespaces (namespaces.py). Then first.py writes to the
descriptor how the command ended. Otherwise the descriptor is -1.

This is a program and not a `preexec_fn`, because Python code between fork and exec can deadlock when
the worker has threads. It is run by path and imports only the standard library.
"""

from __future__ import annotations

import ctypes
import importlib
import marshal
import os
import resource
import signal
import sys
from types import ModuleType, SimpleNamespace

TYPE_CHECKING = False  # typing takes longer to import than all else here
if TYPE_CHECKING:
    from workers.attempt.isolation import Reach

_PR_SET_PDEATHSIG = 1
_LIMITS = {
    "core": resource.RLIMIT_CORE,
    "fsize": resource.RLIMIT_FSIZE,
    "nofile": resource.RLIMIT_NOFILE,
    "nproc": resource.RLIMIT_NPROC,
}
_OOM = "oom"
"""Not a resource limit: the OOM score, by which the kernel chooses what to kill when memory runs out."""
_DEAF_TO = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def main(worker_pid: int, limits: str, reach: str, told: str, command: list[str]) -> None:
    """Never returns: execs the command, or exits with 127 and writes the reason to stderr."""
    die_with(worker_pid)
    if reach and unpacked(reach).bwrap is not None:
        try:
            enclose(limits, reach, told, command)
        except OSError as error:
            _give_up("the namespaces", error)
    become(limits, reach, command)


def become(limits: str, reach: str, command: list[str]) -> None:
    """Never returns: see `main`."""
    for limit in filter(None, limits.split(",")):
        name, _, value = limit.partition("=")
        if name == _OOM:
            be_killed_first(value)
            continue
        _, hard = resource.getrlimit(_LIMITS[name])
        number = int(value) if hard == resource.RLIM_INFINITY else min(int(value), hard)
        resource.setrlimit(_LIMITS[name], (number, number))
    for number in signal.valid_signals():  # background shells and Python ignore some, and exec keeps that
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    try:
        if reach:
            _beside("confine").confine(unpacked(reach))
        os.execvpe(command[0], command, os.environ)
    except OSError as error:
        _give_up(repr(command[0]), error)


def enclose(limits: str, reach: str, told: str, command: list[str]) -> None:
    """Become bubblewrap, which runs the command. Raises OSError: no bubblewrap, or no folder to write in."""
    whole, namespaces = unpacked(reach), _beside("namespaces")
    inner = marshal.dumps({**vars(whole), **namespaces.inside(whole)}).hex()
    first = os.path.join(os.path.dirname(os.path.abspath(__file__)), "first.py")
    python = (os.path.realpath(sys.executable), "-I", "-S")
    argv = namespaces.enclosed(
        whole, _beside("confine").gpu_devices(), [*python, first, told, limits, inner, *command]
    )
    for number in _DEAF_TO:  # for the run; bubblewrap would end by them, and the run with it
        signal.signal(number, signal.SIG_IGN)
    os.execv(argv[0], argv)


def be_killed_first(score: str) -> None:
    """Raise the OOM score: the kernel kills this process and its children first (Linux only)."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write(score)
    except OSError:  # no /proc, or it would have to be less
        return


def unpacked(word: str) -> Reach:
    """The fields of a reach. Importing its class would take longer than reading them."""
    fields: Reach = SimpleNamespace(**marshal.loads(bytes.fromhex(word)))  # type: ignore[assignment]
    return fields


def die_with(worker_pid: int) -> None:
    """Make the kernel kill this process when the worker dies, also by kill -9 (Linux only)."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != worker_pid:  # the worker died before prctl
        os._exit(137)


def _beside(name: str) -> ModuleType:
    """A file of this folder, as a module."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    found = importlib.import_module(name)
    sys.path.pop(0)
    return found


def _give_up(what: str, error: OSError) -> None:
    sys.stderr.write(f"nightjar: cannot start {what}: {error.strerror}\n")
    sys.stderr.flush()
    os._exit(127)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5:])
