"""Runs in namespaces of their own: how they end is told truly, and nothing of them outlives their worker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.workers.attempt.test_child import PATIENT, QUICK, ROOT, TIDIES, command, once_printed
from tests.workers.tiers import needs
from tests.workers.watching import Orders
from workers.attempt import namespaces
from workers.attempt.child import RunCommand, run_command
from workers.attempt.isolation import Reach, RunAccess, bubblewrap

pytestmark = pytest.mark.process

SCRATCH = 1 << 20


@pytest.fixture(autouse=True)
def _works_here() -> None:
    needs("bwrap")


def reach(tree: Path) -> Reach:
    ground = RunAccess(ROOT, (), tree / "caches", network=False, bwrap=bubblewrap(), scratch_bytes=SCRATCH)
    return ground.reach(tree, tree, tree / "log", Path(sys.executable), "", ROOT)


def enclosed(tmp_path: Path, label: str, script: str, *, timeout_s: float = 60) -> RunCommand:
    return replace(command(tmp_path, label, script, timeout_s=timeout_s), reach=reach(tmp_path))


@pytest.mark.parametrize(
    ("end", "returncode"),
    [
        ("sys.exit(0)", 0),
        ("sys.exit(3)", 3),
        ("os.kill(os.getpid(), 11)", -11),
    ],
)
async def test_how_a_run_ended_is_told_truly(tmp_path: Path, label: str, end: str, returncode: int) -> None:
    ended = await run_command(enclosed(tmp_path, label, f"import os, sys; {end}"), Orders(), QUICK)

    assert (ended.cause, ended.returncode, ended.log, ended.is_empty) == ("exit", returncode, "", True)


async def test_a_run_may_tidy_up_when_it_is_told_to_end(tmp_path: Path, label: str) -> None:
    ended = await run_command(
        enclosed(tmp_path, label, TIDIES), Orders(on_poll=once_printed(tmp_path, "stop")), PATIENT
    )

    assert (ended.cause, ended.returncode, ended.log) == ("stop", 0, "tidied\n")


def test_a_signal_to_the_group_of_the_worker_reaches_the_script(tmp_path: Path, label: str) -> None:
    (tmp_path / "asked.py").write_text(TIDIES)
    argv = [sys.executable, "-P", "-c", WORKER, str(tmp_path), label]
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(argv, env=environ, process_group=0, stdout=subprocess.PIPE, text=True) as worker:
        while not (tmp_path / "ready").exists():
            assert worker.poll() is None
            time.sleep(0.02)
        os.killpg(worker.pid, signal.SIGTERM)
        told, _ = worker.communicate(timeout=60)

    assert told == "exit 0 tidied\n"


async def test_a_run_sees_its_own_processes_and_no_others(tmp_path: Path, label: str) -> None:
    script = """
        import os, socket
        print(sorted(filter(str.isdecimal, os.listdir("/proc")), key=int), os.getpid(), os.getppid())
        print(os.listdir("/tmp") == [] or os.getcwd().startswith("/tmp"), os.listdir("/dev/shm"))
        print([name for _, name in socket.if_nameindex()])
    """

    ended = await run_command(enclosed(tmp_path, label, script), Orders(), QUICK)

    assert ended.log == "['1', '2'] 2 1\nTrue []\n['lo']\n"


async def test_its_temporary_file_systems_have_a_size_and_end_with_it(tmp_path: Path, label: str) -> None:
    name = uuid.uuid4().hex
    script = f"""
        for folder in ("/tmp", "/dev/shm"):
            try:
                with open(f"{{folder}}/{name}", "wb") as file:
                    file.write(bytes({2 * SCRATCH}))
            except OSError as problem:
                print(problem.errno)
    """

    ended = await run_command(enclosed(tmp_path, label, script), Orders(), QUICK)

    assert ended.log == "28\n28\n"
    assert name not in {*os.listdir("/tmp"), *os.listdir("/dev/shm")}


async def test_namespaces_that_cannot_be_made_are_no_end_of_the_script(tmp_path: Path, label: str) -> None:
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'bwrap: no more namespaces' >&2; exit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    asked = replace(
        enclosed(tmp_path, label, ""), reach=reach(tmp_path)._replace(bwrap=str(tmp_path / "bwrap"))
    )

    with pytest.raises(OSError, match="bwrap: no more namespaces"):
        await run_command(asked, Orders(), QUICK)


WORKER = """
import asyncio, signal, sys
from pathlib import Path
from tests.workers.attempt.test_namespaces import enclosed
from tests.workers.watching import Orders
from workers.attempt.child import RunTiming, run_command

here, label = Path(sys.argv[1]), sys.argv[2]
signal.signal(signal.SIGTERM, lambda *_: None)
ended = asyncio.run(run_command(enclosed(here, label, (here / "asked.py").read_text()), Orders(), RunTiming()))
print(ended.cause, ended.returncode, ended.log, end="")
"""
HIDES = """
import os, sys, time
sleeper = [sys.executable, "-I", "-S", "-c", "import time; open('ready', 'w'); time.sleep(600)", "{mark}"]
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve(sleeper[0], sleeper, dict())
    os._exit(0)
os.wait()
if os.fork():
    time.sleep(600)
while True:
    os.fork() and os._exit(0)
    time.sleep(0.002)
"""


def test_nothing_of_a_run_outlives_its_worker_whatever_hides_or_forks(tmp_path: Path, label: str) -> None:
    mark = uuid.uuid4().hex
    (tmp_path / "asked.py").write_text(HIDES.format(mark=mark))
    argv = [sys.executable, "-P", "-c", WORKER, str(tmp_path), label]
    with subprocess.Popen(argv, env=os.environ | {"PYTHONPATH": str(ROOT)}) as worker:
        while not (tmp_path / "ready").exists():
            assert worker.poll() is None
            time.sleep(0.02)
        below = psutil.Process(worker.pid).children(recursive=True)
        assert living(mark)

        worker.kill()
        worker.wait()

    give_up = time.monotonic() + 20
    while living(mark) or any(process.is_running() for process in below):
        assert time.monotonic() < give_up
        time.sleep(0.02)


def living(mark: str) -> list[int]:
    return [p.pid for p in psutil.process_iter(["cmdline"]) if mark in (p.info["cmdline"] or [])]


def test_what_is_reached_by_links_is_found_at_the_names_it_has(tmp_path: Path) -> None:
    real, home = tmp_path / "disk" / "python", tmp_path / "home"
    (real / "bin").mkdir(parents=True)
    (home / "project").mkdir(parents=True)
    (home / "bin").symlink_to(real / "bin")
    (home / "project" / "inside").symlink_to("nowhere")
    asked = Reach(
        [str(home / "project")],
        [str(home / "bin" / ".."), "/usr", "/usr/bin"],
        True,
        True,
        (),
        None,
        "bwrap",
        1,
    )

    argv = namespaces.enclosed(asked, (), ["it"])

    pairs = {(argv[at], argv[at + 1], argv[at + 2]) for at in range(len(argv) - 2)}
    assert ("--symlink", str(real / "bin"), str(home / "bin")) in pairs
    assert ("--ro-bind", str(real), str(real)) in pairs
    assert ("--bind", str(home / "project"), str(home / "project")) in pairs
    assert ("--ro-bind", "/usr", "/usr") in pairs
    assert ("--ro-bind", "/usr/bin", "/usr/bin") not in pairs
    assert "--unshare-net" not in argv
