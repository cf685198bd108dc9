"""A process is told from a later one with its pid, and its descendants are known."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

import functions.kernel.process.process_identity
from functions.kernel.process.ending import children_of, descendants_of
from functions.kernel.process.process_identity import birth_name, is_alive

pytestmark = pytest.mark.process


@contextmanager
def sleeping(program: str) -> Iterator[int]:
    """The pid of a process that does nothing."""
    with subprocess.Popen([program, "60"]) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def test_a_process_that_has_ended_and_waits_for_its_parent_is_not_alive() -> None:
    with sleeping("sleep") as pid:
        name = birth_name("h", pid)
        zombie = psutil.Process(pid)

        zombie.kill()
        while zombie.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)

        assert not is_alive(name, "h")


def test_another_process_with_the_same_pid_is_not_it() -> None:
    host, pid, born = birth_name("h", os.getpid()).split(":")
    assert is_alive(f"{host}:{pid}:{born}", "h")
    assert not is_alive(f"{host}:{pid}:{born}0", "h")
    assert not is_alive(f"{host}:{pid}:", "h")
    assert is_alive("elsewhere:1:1", "h"), "one of another host is believed to live"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the time of day is all there is")
def test_setting_the_clock_does_not_kill_it(monkeypatch: pytest.MonkeyPatch) -> None:
    name = birth_name("h", os.getpid())
    created = psutil.Process.create_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda process: created(process) + 3600)
    assert is_alive(name, "h")


def test_a_program_named_with_spaces_and_parentheses_is_read_right(tmp_path: Path) -> None:
    program = tmp_path / "a) R 1 (b"
    shutil.copy(shutil.which("sleep") or "sleep", program)

    with sleeping(str(program)) as pid:
        born = birth_name("h", pid).split(":")[2]
        with sleeping("sleep") as other:
            later = birth_name("h", other).split(":")[2]

        assert born.split("/")[0] == later.split("/")[0]
        assert 0 <= int(later.split("/")[1]) - int(born.split("/")[1]) < 6000


def test_without_proc_the_time_of_its_birth_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions.kernel.process.process_identity, "boot_id", lambda: None)
    with sleeping("sleep") as pid:
        name = birth_name("h", pid)
        assert is_alive(name, "h")
    assert not is_alive(name, "h")


def test_children_and_their_children_are_known() -> None:
    command = ["sh", "-c", "sleep 600 & echo $!; read line; kill $!"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        grandchild = int(parent.stdout.readline())

        assert parent.pid in children_of(os.getpid())
        assert grandchild not in children_of(os.getpid())
        assert {parent.pid, grandchild} <= {*descendants_of([os.getpid()])}
        parent.communicate("\n")
