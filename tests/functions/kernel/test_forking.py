"""A process that is started as a fork of its supervisor is like one that was started anew, but for its start."""

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

ROOT = Path(__file__).parents[3]
SUPERVISING = """
import asyncio, json, os, signal, sys, threading, time
from pathlib import Path

import functions.kernel.process.forking as forking
from functions.kernel.process.supervision import ProcessGroup, ProcessSpec, RestartBackoff, stopping_on_signals

WARM = os.getpid()
ARGV = (sys.executable, "-P", "-c", "print('started anew', flush=True); import time; time.sleep(60)", "a b")

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
    spec = ProcessSpec("web", ARGV, {"NIGHTJAR_DATA": "/nowhere", "LC_CTYPE": "C.UTF-8"}, 10.0, main=main)
    group = ProcessGroup([spec], Path(sys.argv[1]), said, RestartBackoff(first_s=0.01))
    with stopping_on_signals(group) as stop:
        AROUND
        await group.start()
        print("started", group.pids["web"], flush=True)
        await group.run_until(stop)
        await group.drain()

asyncio.run(supervise())
"""


class Supervisor:
    """A process with one child, which it forks."""

    def __init__(self, process: subprocess.Popen[str], log: Path, first: str | None = None) -> None:
        self.process = process
        self._log = log
        self.first = self.heard(first) if first else ""
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
def supervisor(
    folder: Path, body: str = "time.sleep(60)", around: str = "pass", first: str | None = None
) -> Iterator[Supervisor]:
    """One whose fork does this; it leaves nothing alive."""
    code = textwrap.dedent(SUPERVISING).replace("BODY", body).replace("AROUND", around)
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", code, str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "SECRET_OF_THE_PARENT": "x"},
    )
    try:
        yield Supervisor(process, folder / "web.log", first)
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


def test_a_fork_is_told_to_end_when_its_parent_is_killed(tmp_path: Path) -> None:
    with supervisor(tmp_path) as parent:
        parent.logged("warm")
        parent.process.kill()
        assert parent.child.wait(30) is None  # no child of ours


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


def test_a_fork_ends_in_order_with_its_supervisor(tmp_path: Path) -> None:
    ending = "signal.signal(15, lambda *_: (print('ended', flush=True), sys.exit(0))); time.sleep(60)"
    with supervisor(tmp_path, f"print('up', flush=True); {ending}") as parent:
        child = parent.child
        parent.logged("up")
        time.sleep(0.1)
        parent.process.send_signal(signal.SIGINT)

        assert parent.process.wait(30) == 0
        assert parent.logged("ended") == "ended"
        assert not child.is_running()
