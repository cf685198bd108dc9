"""Orphans of a run and stopped processes are ended, and none of the worker's own, however slowly these start."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil
import pytest

from tests.workers.attempt.test_child import printed_by
from tests.workers.headless import HEADLESS, needs_number_of_exit
from workers.attempt.processes import StoppedProcesses

pytestmark = [pytest.mark.process, pytest.mark.skipif(sys.platform != "linux", reason="orphans are Linux's")]


def in_a_process(body: str) -> str:
    """The output of a process that runs this with `orphans`. Adopting orphans changes a whole process."""
    head = "import os, signal, subprocess, sys, time\nfrom workers.attempt.processes import Orphans\n"
    script = head + "orphans = Orphans()\n" + textwrap.dedent(body)
    return printed_by(script).strip()


def test_a_fork_that_has_not_yet_told_its_mark_is_no_orphan() -> None:
    told = in_a_process(
        """
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(write)
            os.read(read, 1)
            os._exit(7)
        is_empty = orphans.end()
        os.close(write)
        print(is_empty, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        """
    )

    assert told == "True 7"


def test_a_child_that_has_ended_is_left_to_who_waits_for_it() -> None:
    told = in_a_process(
        """
        child = subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"])
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        print(orphans.end(), child.wait())
        """
    )

    assert told == "True 7"


@pytest.mark.parametrize("environ", ["{}", "{'PATH': '/bin'}"])
def test_an_orphan_of_a_run_is_ended(environ: str) -> None:
    told = in_a_process(
        f"""
        read, write = os.pipe()
        run = os.fork()
        if run == 0:
            orphan = os.fork()
            if orphan == 0:
                os.set_inheritable(write, True)
                sleeping = "import time, os; os.write(" + str(write) + ", b'%d' % os.getpid()); time.sleep(600)"
                os.execve(sys.executable, [sys.executable, "-c", sleeping], {environ})
            os._exit(0)
        os.waitpid(run, 0)
        orphan = int(os.read(read, 20))
        print(orphans.end(), os.path.exists(f"/proc/{{orphan}}/exe"))
        """
    )

    assert told == "True False"


@needs_number_of_exit
@pytest.mark.parametrize("environ", ["{}", "{'PATH': '/bin'}"])
def test_a_process_of_a_run_whose_first_thread_has_ended_is_ended(environ: str) -> None:
    told = in_a_process(
        f"""
        left = subprocess.Popen([sys.executable, "-c", {HEADLESS!r}], env={environ}, stdout=subprocess.PIPE)
        left.stdout.readline()
        print(orphans.end(), os.path.exists(f"/proc/{{left.pid}}"))
        left.kill()
        """
    )

    assert told == "True False"


@needs_number_of_exit
def test_a_process_of_ours_whose_first_thread_has_ended_is_no_orphan() -> None:
    told = in_a_process(
        f"""
        ours = subprocess.Popen([sys.executable, "-c", {HEADLESS!r}], stdout=subprocess.PIPE)
        ours.stdout.readline()
        print(orphans.end(), ours.poll())
        ours.kill()
        """
    )

    assert told == "True None"


BUSY = "while True: pass"


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


def test_what_is_stopped_for_too_long_is_killed_and_what_went_on_meanwhile_has_its_time_again() -> None:
    with parent_of(BUSY) as (root, child):
        stopped = StoppedProcesses(silent_s=15.0)
        assert stopped.end([root], now=0.0) == []
        stop(child)
        assert [stopped.end([root], now) for now in (100.0, 114.9)] == [[], []]

        resume_for_a_moment(child)
        looks = [stopped.end([root], now) for now in (115.0, 129.9, 130.0)]

        assert looks == [[], [], [child.pid]]
        until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)
