"""The journal of a simulated swarm: it grows by itself, and stays whatever becomes of the processes."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.commands import PATIENCE_S, command_line, nightjar
from tests.journeys.running import FAST, RunningLab, running_lab

pytestmark = [pytest.mark.process, pytest.mark.timeout(400)]

SECTIONS = [
    "### Belief movements",
    "### Eliminated this cycle",
    "### New hypotheses generated",
    "### Population changes",
]


def checkpoints(lab: RunningLab) -> list[dict[str, Any]]:
    return list(lab.post("journal/list", tag="swarm")["checkpoints"])


def restart(lab: RunningLab, number: int) -> None:
    lab.stop(number)
    lab.until(lambda: not lab.processes(), "every process has ended")
    lab.start()


def test_every_checkpoint_of_a_swarm_is_there_after_two_restarts(tmp_path: Path) -> None:
    with running_lab(tmp_path / "lab", FAST) as lab:
        lab.start()
        asked = ("--workers", "30", "--rounds", "8", "--speed", "150", "--seed", "3")
        simulation = subprocess.Popen(
            command_line("simulate", "--meta-url", f"http://127.0.0.1:{lab.port}", *asked),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=tmp_path,
        )
        try:
            lab.until(lambda: len(checkpoints(lab)) == 1, "100 results were learned from")
            [first] = checkpoints(lab)
            restart(lab, signal.SIGKILL)
            assert checkpoints(lab)[:1] == [first]
            lab.until(lambda: len(checkpoints(lab)) == 2, "100 more were")
            simulation.wait(PATIENCE_S)
        finally:
            simulation.kill()
            simulation.wait()
        before = checkpoints(lab)

        restart(lab, signal.SIGINT)

        assert checkpoints(lab) == before
        assert before[0] == first
        for nth, checkpoint in enumerate(before, 1):
            lines = checkpoint["text"].splitlines()
            assert lines[0].startswith(f"## Checkpoint {nth} · {nth}")
            assert [line for line in lines if line.startswith("### ")] == SECTIONS
        told = "\n".join(checkpoint["text"] for checkpoint in before)
        assert lab.http.get("/meta_log").text == told
        assert nightjar(lab.data, "journal").stdout == told
        in_graph = {node["statement"] for node in lab.http.get("/theory_graph").json()["nodes"]}
        found = lab.post("hypothesis/list", tag="swarm", archived=True)["hypotheses"]
        since_the_start = {each["statement"] for each in found if each["statement"].endswith(" matters")}
        assert since_the_start  # others, of pairs, may have been proposed after the last checkpoint
        assert since_the_start <= in_graph
        assert {f"`{statement}`" in told for statement in since_the_start} == {True}
