"""The demo: how it ends when it is interrupted, and what it leaves when it is killed."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

from tests.commands import command_line
from tests.journeys.running import LOOK_S, PATIENCE_S, processes_on

AGENT = "agent.py"


def count_is(data: Path, count: int, *words: str) -> bool:
    """Wait until so many processes of this lab have these words in their command lines."""
    give_up = time.monotonic() + PATIENCE_S
    while len(processes_on(data, *words)) != count:
        if time.monotonic() > give_up:
            return False
        time.sleep(LOOK_S)
    return True


def test_killing_the_demo_ends_its_agents_and_its_lab(tmp_path: Path) -> None:
    data = tmp_path / "demo"
    words = ("demo", "--data", str(data), "--runs", "1000", "--port", "0")
    with subprocess.Popen(
        command_line(*words), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=tmp_path
    ) as demo:
        both_work = count_is(data, 2, AGENT)

        demo.kill()

    try:
        assert both_work
        assert count_is(data, 0), processes_on(data)
    finally:
        for process in processes_on(data):
            process.kill()


def test_ctrl_c_while_the_demo_starts_ends_it_as_later(tmp_path: Path) -> None:
    data = tmp_path / "demo"
    with subprocess.Popen(
        command_line("demo", "--data", str(data), "--port", "0"),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        text=True,
    ) as demo:
        starts = count_is(data, 1, "triggers.web")

        demo.send_signal(signal.SIGINT)
        _, said = demo.communicate(timeout=PATIENCE_S)

    assert starts
    assert (demo.returncode, "interrupted; the lab is kept" in said) == (130, True), said
