"""A supervisor that is a process itself, with a child that it forks or starts anew."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every process is started anew"),
]
EITHER = pytest.mark.parametrize("is_forked", [True, False], ids=["forked", "anew"])

ROOT = Path(__file__).parents[3]
SUPERVISING = """
import asyncio, json, os, signal, sys, threading, time
from pathlib import Path

import functions.kernel.process.forking as forking
from functions.kernel.process.supervision import ProcessGroup, ProcessSpec, RestartBackoff, stopping_on_signals

WARM = os.getpid()
ARGV = (sys.executable, "-P", "-c", ANEW, "a b")

def main():
    tell()
    asyncio.run(asyncio.sleep(0))
    BODY

def tell():
    def descriptors():
        return {int(name): os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")
                if os.path.exists(f"/proc/self/fd/{name}")}
    print(json.dumps({
        "warm": WARM, "ppid": os.getppid(), "group": os.getpgid(0), "pid": os.getpid(),
        "environ": dict(os.environ), "files": descriptors(),
        "handlers": [signal.getsignal(n) == signal.SIG_DFL for n in (signal.SIGTERM, signal.SIGHUP)],
        "ctrl_c": signal.getsignal(signal.SIGINT) == signal.default_int_handler,
        "blocked": [int(n) for n in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
    }), flush=True)

async def supervise():
    said = lambda line: print(line, flush=True)
    spec = ProcessSpec("web", ARGV, {"NIGHTJAR_DATA": "/nowhere", "LC_CTYPE": "C.UTF-8"}, 600.0, main=MAIN)
    group = ProcessGroup([spec], Path(sys.argv[1]), said, RestartBackoff(first_s=0.01))
    with stopping_on_signals(group) as stop:
        await group.start()
        print("started", group.pids["web"], flush=True)
        await group.run_until(stop)
        await group.drain()

asyncio.run(supervise())
"""


class Supervisor:
    """A process with one child."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process = process
        self._log = log
        self._started = int(self.heard("started").split()[1])

    @property
    def child(self) -> psutil.Process:
        """The process that was started first; it has not ended."""
        return psutil.Process(self._started)

    def heard(self, words: str) -> str:
        """The next line of the supervisor that begins so."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(words):
                return line
        raise AssertionError(f"it ended without {words!r}")

    def logged(self, words: str) -> str:
        """The first line of the child that holds these words, once it is there."""
        give_up = time.monotonic() + 30
        while True:
            lines = self._log.read_text().splitlines() if self._log.exists() else []
            if found := [line for line in lines if words in line]:
                return found[0]
            assert time.monotonic() < give_up, lines
            time.sleep(0.01)


@contextmanager
def supervisor(folder: Path, body: str = "time.sleep(60)", *, is_forked: bool = True) -> Iterator[Supervisor]:
    """One whose child does this as a fork, or as a process that was started anew; it leaves nothing alive."""
    anew = f"import signal, sys, time; print('started anew', flush=True); {'time.sleep(60)' if is_forked else body}"
    code = textwrap.dedent(SUPERVISING).replace("BODY", body if is_forked else "pass")
    code = code.replace("ANEW", repr(anew)).replace("MAIN", "main" if is_forked else "None")
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", code, str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "SECRET_OF_THE_PARENT": "x"},
    )
    try:
        yield Supervisor(process, folder / "web.log")
    finally:
        process.kill()
        process.communicate()


def test_a_fork_has_its_own_name_environment_group_and_files(tmp_path: Path) -> None:
    with supervisor(tmp_path) as parent:
        told = json.loads(parent.logged("warm"))
        child = parent.child

        assert (told["warm"], told["ppid"]) == (parent.process.pid, parent.process.pid)
        assert (told["pid"], told["group"]) == (child.pid, child.pid)
        assert told["environ"] == child.environ() == {"NIGHTJAR_DATA": "/nowhere", "LC_CTYPE": "C.UTF-8"}
        assert child.cmdline()[:3] == [sys.executable, "-P", "-c"]
        assert child.cmdline()[-1] == "a b"
        files = {int(number): name for number, name in told["files"].items()}
        assert (files[0], files[1], files[2]) == (os.devnull, *[str(tmp_path / "web.log")] * 2)
        assert {*files} - {0, 1, 2} == set()
        assert told["handlers"] == [True, True]
        assert told["ctrl_c"]
        assert told["blocked"] == []


@pytest.mark.parametrize(
    ("body", "status"),
    [
        *(("return 3", 3), ("sys.exit(4)", 4), ("sys.exit()", 0), ("raise ValueError('why')", 1)),
        ("os.kill(os.getpid(), 9)", -9),
    ],
)
def test_a_fork_that_ends_is_restarted_with_its_status_told(tmp_path: Path, body: str, status: int) -> None:
    with supervisor(tmp_path, body) as parent:
        assert f"exit status {status} " in parent.heard("restarting web")
        assert parent.logged("started anew") == "started anew"
        assert ("ValueError: why" in (tmp_path / "web.log").read_text()) == ("ValueError" in body)


UP = "print('ready', flush=True); time.sleep(60)"
ENDS = f"signal.signal(15, lambda *_: (print('ended', flush=True), sys.exit(0))); {UP}"


@EITHER
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_child_in_order_with_its_supervisor(
    tmp_path: Path, number: signal.Signals, is_forked: bool
) -> None:
    with supervisor(tmp_path, ENDS, is_forked=is_forked) as parent:
        child = parent.child
        parent.logged("ready")
        parent.process.send_signal(number)

        assert "waiting for web" in parent.heard("stopping")
        assert parent.process.wait(30) == 0
        assert parent.logged("ended") == "ended"
        assert not child.is_running()


def test_a_second_interrupt_forces(tmp_path: Path) -> None:
    with supervisor(tmp_path, f"signal.signal(15, signal.SIG_IGN); {UP}") as parent:
        child = parent.child
        parent.logged("ready")
        parent.process.send_signal(signal.SIGINT)
        parent.heard("stopping")
        assert child.is_running()
        parent.process.send_signal(signal.SIGINT)

        assert parent.process.wait(30) == 0
        assert not child.is_running()


COMPUTES = f"""
import asyncio, sys, time
sys.path.insert(0, {str(ROOT)!r})
from functions.kernel.process.running import stop_signals

async def computing():
    stop_signals(0.5)
    print("ready", flush=True)
    await asyncio.to_thread(time.sleep, 600)

asyncio.run(computing())
"""


@EITHER
@pytest.mark.parametrize(("body", "last"), [(ENDS, "ended"), (f"exec({COMPUTES!r}, {{}})", "ready")])
def test_a_child_of_a_killed_supervisor_still_ends_in_order_even_if_it_computes_for_minutes(
    tmp_path: Path, body: str, last: str, is_forked: bool
) -> None:
    with supervisor(tmp_path, body, is_forked=is_forked) as parent:
        child = parent.child
        parent.logged("ready")
        parent.process.kill()

        child.wait(30)
        assert parent.logged(last)
