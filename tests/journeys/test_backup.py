"""A lab that is saved while it works, lost, and made again elsewhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.commands import forked_nightjar
from tests.journeys.running import RunningLab, running_lab

STUCK = """
import asyncio, sys
import state.backup as backup
from triggers.cli.__main__ import main

step = getattr(backup, sys.argv[1])

async def stuck(*arguments):
    await step(*arguments)
    print("in the middle", flush=True)
    await asyncio.sleep(600)

setattr(backup, sys.argv.pop(1), stuck)
sys.exit(main())
"""
"""The command line, which stops for ever after the first call of one of its steps."""


HELD = """
import os, time
from nightjar_report import report

VALUE = 1.0
HELD = False

report(VALUE, 0.5)
while HELD and os.path.exists(HOLD_FILE):
    time.sleep(0.05)
    report(VALUE, 0.5)
import prepare
print(f"---\\nval_bpb: {VALUE + prepare.OFFSET}")
"""
"""A training script that can be told to go on until a file is gone."""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[RunningLab]:
    with running_lab(tmp_path / "first") as found:
        yield found


@contextmanager
def second_lab(folder: Path, repo: Path) -> Iterator[RunningLab]:
    """Another lab on another folder, that trains from the first one's repository."""
    with running_lab(folder) as found:
        found.repo = repo
        yield found


def environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith("NIGHTJAR_")}


def nightjar(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command as a person would."""
    return forked_nightjar([*map(str, words)], environment(), Path.cwd())


def killed_in_the_middle(step: str, *words: str | Path) -> None:
    """Run a command and kill it (-9) right after one of its steps."""
    command = [sys.executable, "-c", STUCK, step, *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "in the middle\n"
        process.kill()


def facts(lab: RunningLab, experiments: list[str]) -> dict[str, Any]:
    """What people know of a lab's past."""
    history = lab.post("experiment/history", tag="t", limit=100)["experiments"]
    return {
        "history": [e for e in history if e["experiment_id"] in experiments],
        "best": lab.post("experiment/best", tag="t"),
        "near misses": lab.post("experiment/near-misses", tag="t"),
        "diff": lab.post("report/diff", experiment_a=experiments[0], experiment_b=experiments[1]),
        "policy": lab.post("search/policy", tag="t"),
        "strategy": lab.post("search/strategy", tag="t"),
        "dimensions": lab.post("dimension/list", tag="t"),
    }


def events(lab: RunningLab, until: int | None = None) -> list[dict[str, Any]]:
    """The first events of the stream, or all that there are, without the lab's name."""
    found: list[dict[str, Any]] = []
    with lab.http.stream("GET", "/api/events", params={"since": "0"}) as stream:
        assert stream.status_code == 200
        wanted = until or int(lab.get("lab/status")["events"]["length"])
        for line in stream.iter_lines():
            if line.startswith("data:"):
                event = json.loads(line.removeprefix("data:"))
                found.append({name: value for name, value in event.items() if name != "lab"})
            if len(found) == wanted:
                return found
    raise AssertionError("the stream ended")


def test_a_lab_saved_in_the_middle_of_a_run_goes_on_elsewhere_under_another_name(
    lab: RunningLab, tmp_path: Path
) -> None:
    file = tmp_path / "lab.nightjar"
    hold = lab.repo / "hold"  # which every run may read
    lab.base = lab.commit({"train.py": HELD.replace("HOLD_FILE", repr(str(hold)))})
    hold.touch()
    lab.start()
    policy: dict[str, Any] = {"near_miss_margin": 0.01, "budgets.base_s": 300}
    lab.setup("t", **policy)
    done = [lab.submit(config_delta={"VALUE": value}) for value in (1.0, 0.9, 0.905)]
    for experiment in done:
        lab.until_status(experiment, "keep", "discard")
    lab.post("search/set-strategy", tag="t", mode="combine", reason="near misses")
    lab.post("dimension/define", tag="t", profile="nanochat")
    running = lab.submit(config_delta={"HELD": True, "VALUE": 0.8})
    lab.until_training(running)
    waiting = lab.submit(config_delta={"VALUE": 0.7})
    known, told = facts(lab, done), events(lab)

    killed_in_the_middle("_read", "backup", file, "--data", lab.data)
    lab.post("experiment/setup", tag="goes-on")
    assert not file.exists()
    saved = nightjar("backup", file, "--data", lab.data)
    assert saved.returncode == 0, saved.stderr
    assert re.match(rf"{re.escape(str(file))}: \d+ keys, \d+\.\d kB", saved.stdout)
    assert lab.up is not None
    lab.up.kill()
    lab.up.wait()
    lab.until(lambda: not lab.processes(), "nothing of the lab is alive")

    with second_lab(tmp_path / "second", lab.repo) as other:
        arguments = ("restore", file, "--data", other.data, "--lab", "second")
        killed_in_the_middle("_write", *arguments)
        other.until(lambda: not other.processes("redis-server"), "its Redis has ended with it")
        with pytest.raises(AssertionError, match="half restored"):
            other.start("--lab", "second")
        restored = nightjar(*arguments, "--json")
        assert restored.returncode == 0, restored.stderr
        assert json.loads(restored.stdout)["waiting_again"] == [running]
        other.start("--lab", "second")

        hold.unlink()
        assert facts(other, done) == known
        assert events(other, len(told)) == told
        assert other.until_status(running, "keep")["experiment"]["attempt"] == 2
        assert other.until_status(waiting, "keep")["experiment"]["attempt"] == 1
        other.until_idle()
        assert other.post("lab/audit")["violations"] == []
        again = nightjar(*arguments)
        assert again.returncode == 1
        assert "exists already" in again.stderr
