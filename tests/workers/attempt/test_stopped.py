"""What stands still below a worker, with real processes and a clock of the tests' own."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil
import pytest

from workers.attempt.stopped import Standstills

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="workers are Linux only"),
]

BUSY = "while True: pass"
TRACED = """
import ctypes, os, signal
ctypes.CDLL(None).ptrace(0, 0, 0, 0)  # PTRACE_TRACEME: from now on every signal stops it for its parent
os.kill(os.getpid(), signal.SIGUSR1)
"""


@contextmanager
def parent_of(code: str) -> Iterator[tuple[int, psutil.Process]]:
    """A process, and the child that it started, which runs this code."""
    start = (
        f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {code!r}]); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", start]) as parent:
        root = psutil.Process(parent.pid)
        try:
            until(lambda: len(root.children()) == 1)
            yield parent.pid, root.children()[0]
        finally:
            for process in (*root.children(recursive=True), root):
                process.kill()


def until(met: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 30
    while not met():
        assert time.monotonic() < give_up, "it never happened"
        time.sleep(0.01)


def stop(process: psutil.Process) -> None:
    process.suspend()
    until(lambda: process.status() == psutil.STATUS_STOPPED)


def resume_for_a_moment(process: psutil.Process) -> None:
    used = process.cpu_times().user
    process.resume()
    until(lambda: process.cpu_times().user > used)
    stop(process)


def test_what_was_stopped_for_too_long_is_killed_and_what_runs_is_not() -> None:
    with parent_of(BUSY) as (root, child):
        standstills = Standstills(silent_s=15.0)
        assert standstills.end([root], now=0.0) == []

        stop(child)
        looks = [standstills.end([root], now) for now in (100.0, 114.9, 115.0)]

        assert looks == [[], [], [child.pid]]
        until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_what_went_on_for_a_moment_is_given_all_of_its_time_again() -> None:
    with parent_of(BUSY) as (root, child):
        standstills = Standstills(silent_s=15.0)
        stop(child)
        assert standstills.end([root], now=0.0) == []

        resume_for_a_moment(child)
        looks = [standstills.end([root], now) for now in (14.0, 28.9, 29.0)]

        assert looks == [[], [], [child.pid]]


def test_what_a_debugger_holds_is_left_alone() -> None:
    with parent_of(TRACED) as (root, child):
        until(lambda: child.status() == psutil.STATUS_TRACING_STOP)
        standstills = Standstills(silent_s=15.0)

        looks = [standstills.end([root], now) for now in (0.0, 1000.0)]

        assert looks == [[], []]
        assert child.status() == psutil.STATUS_TRACING_STOP


def test_the_root_itself_is_another_s_to_judge_and_one_that_has_gone_has_nothing_below_it() -> None:
    with parent_of(BUSY) as (root, child):
        standstills = Standstills(silent_s=0.0)
        child.send_signal(signal.SIGKILL)
        stop(psutil.Process(root))

        assert standstills.end([root], now=0.0) == []
    assert standstills.end([root], now=1.0) == []
