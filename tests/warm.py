"""Starts command lines of ours as forks of a process that has imported everything: that takes most of a start.

What is started is a process like any other, by its name, its environment, its files and what it does. Only `execve`
of another module of ours goes on in it, where it would import anew what is there.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from functions.kernel.process import forking
from functions.kernel.process.running import started
from state.own_processes import tell

ROOT = Path(__file__).parents[1]
LONGEST = 1 << 20
"""Bytes of a command line with its environment."""
_STATUS = struct.Struct("i")
_asking = threading.Lock()
"""Held from a question to its answer."""


class Started:
    """A started process; it is used as subprocess.Popen is."""

    def __init__(self, pid: int, status: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._status = status
        os.set_blocking(status, False)

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._status)

    def poll(self) -> int | None:
        """Its exit status; None while it lives."""
        if self.returncode is None:
            with contextlib.suppress(BlockingIOError):
                told = os.read(self._status, _STATUS.size)
                self.returncode = _STATUS.unpack(told)[0] if told else -signal.SIGKILL
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, once it has ended. Raises subprocess.TimeoutExpired."""
        ready, _, _ = select.select([self._status], [], [], timeout)
        if not ready or (status := self.poll()) is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(words: Sequence[str], environment: Mapping[str, str], folder: Path, output: int) -> Started:
    """Run `nightjar` with these words in this folder; it writes to the descriptor `output`, and leads a group."""
    return _asked(output, words=[*words], environment=dict(environment), folder=str(folder))


def call(function: Callable[..., object], *arguments: object) -> Started:
    """Call a module's function with these arguments in a fork; it writes where the parent writes."""
    pickled = pickle.dumps(arguments).hex()
    return _asked(1, module=function.__module__, function=function.__name__, arguments=pickled)


def _asked(output: int, **asked: object) -> Started:
    ours, theirs = os.pipe()
    with _asking:
        parent, _ = _parent()
        try:
            socket.send_fds(parent, [json.dumps(asked).encode()], [output, theirs])
        finally:
            os.close(theirs)
        return Started(int(parent.recv(64)), ours)


@cache
def _parent() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """The way to the process that forks, and this itself; it ends with ours."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LONGEST)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.warm", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
    return ours, process


def _modules() -> Mapping[str, Callable[..., Any]]:
    """What every process needs, imported; and the modules that a command may become."""
    commands = import_module("triggers.cli.__main__")
    commands.import_all()
    supervisor, join = import_module("workers.supervisor"), import_module("workers.join")
    return {
        "triggers.cli": commands.main,
        "workers.supervisor": lambda: supervisor.run(*sys.argv[1:]),
        "workers.join": lambda: join.main(sys.argv[1:]),
    }


def main(descriptor: int) -> None:
    """Fork what is asked for, and tell of each how it has ended."""
    modules, running = (
        _modules(),
        dict[int, tuple[int, int]](),
    )  # by their pidfd: pid, where to tell of its end
    sys.path.remove(str(ROOT))
    gc.freeze()
    asking = socket.socket(fileno=descriptor)
    while True:
        for ready in select.select([asking.fileno(), *running], [], [])[0]:
            if ready in running:
                pid, told = running.pop(ready)
                os.close(ready)
                os.write(told, _STATUS.pack(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
                os.close(told)
                continue
            message, descriptors, _, _ = socket.recv_fds(asking, LONGEST, 2)
            if not message:  # the tests are over
                return
            output, told = descriptors
            asked = json.loads(message)
            pid = _forked(modules, asked, output) if "words" in asked else _calling(asked)
            os.close(output)
            running[os.pidfd_open(pid)] = pid, told
            asking.send(str(pid).encode())


def _calling(asked: Mapping[str, str]) -> int:
    """The fork that calls a function; what that needs is imported once, before the first."""
    function = getattr(import_module(asked["module"]), asked["function"])
    gc.freeze()
    if pid := os.fork():
        return pid
    code = 1
    try:
        os.closerange(3, LONGEST)
        function(*pickle.loads(bytes.fromhex(asked["arguments"])))
        code = 0
    except SystemExit as ending:
        code = _status_of(ending)
    except BaseException as problem:  # noqa: BLE001  # told as at the end of any process
        sys.excepthook(type(problem), problem, problem.__traceback__)
    finally:
        _leave(code)


def _status_of(ending: SystemExit) -> int:
    return ending.code if isinstance(ending.code, int) else int(ending.code is not None)


def _leave(code: int) -> NoReturn:
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _forked(modules: Mapping[str, Callable[..., Any]], asked: Mapping[str, Any], output: int) -> int:
    argv = started("triggers.cli", *asked["words"])

    def run() -> int:
        os.chdir(asked["folder"])
        system.execve = become
        sys.argv = ["nightjar", *asked["words"]]
        return int(modules["triggers.cli"]() or 0)

    def become(path: str, words: tuple[str, ...], environment: dict[str, str]) -> NoReturn:
        if words[:3] != started("")[:3] or words[3] not in modules:
            execve(path, words, environment)
        os.environ.clear()
        os.environ.update(environment)
        tell(words, environment)
        sys.argv = [*words[3:]]
        code = 1
        try:
            code = int(modules[words[3]]() or 0)
        except SystemExit as ending:
            code = _status_of(ending)
        finally:
            _leave(code)

    system: Any = os
    execve = os.execve
    return forking.forked(run, argv, asked["environment"], output=output).pid


if __name__ == "__main__":
    main(int(sys.argv[1]))
