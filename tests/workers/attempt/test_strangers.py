"""Strangers ends what runs have left, and none of the worker's own processes, however slowly these start."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from tests.workers.headless import HEADLESS, needs_number_of_exit

pytestmark = [pytest.mark.process, pytest.mark.skipif(sys.platform != "linux", reason="orphans are Linux's")]


def in_a_process(body: str) -> str:
    """The output of a process that runs this with `strangers`. Adopting orphans changes a whole process."""
    head = "import os, signal, subprocess, sys, time\nfrom workers.attempt.strangers import Strangers\n"
    script = head + "strangers = Strangers()\n" + textwrap.dedent(body)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_fork_that_has_not_yet_told_its_mark_is_no_stranger() -> None:
    told = in_a_process(
        """
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(write)
            os.read(read, 1)
            os._exit(7)
        is_empty = strangers.end()
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
        print(strangers.end(), child.wait())
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
        print(strangers.end(), os.path.exists(f"/proc/{{orphan}}/exe"))
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
        print(strangers.end(), os.path.exists(f"/proc/{{left.pid}}"))
        left.kill()
        """
    )

    assert told == "True False"


@needs_number_of_exit
def test_a_process_of_ours_whose_first_thread_has_ended_is_no_stranger() -> None:
    told = in_a_process(
        f"""
        ours = subprocess.Popen([sys.executable, "-c", {HEADLESS!r}], stdout=subprocess.PIPE)
        ours.stdout.readline()
        print(strangers.end(), ours.poll())
        ours.kill()
        """
    )

    assert told == "True None"
