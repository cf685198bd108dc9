"""The README's loop, pasted line by line, in a project that knows nothing of Nightjar."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.running import RunningLab, git, running_lab

README = (Path(__file__).parents[2] / "README.md").read_text()
TRAIN = """
import prepare

WIDTH = 48

for epoch in range(3):
    print(f"epoch {epoch}: loss {3 - epoch}")
    print(f"val_bpb: {prepare.evaluate(WIDTH) + 2 - epoch:.6f}")
print("saved the model to model.pt")
"""
PREPARE = "def evaluate(width):\n    return 1 - width / 1000\n"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[RunningLab]:
    """`up --quiet` in a project of its own."""
    with running_lab(tmp_path) as found:
        shutil.rmtree(found.repo)
        found.repo.mkdir()
        git(found.repo, "init", "--quiet", "--initial-branch=main")
        found.base = found.commit({"train.py": TRAIN, "prepare.py": PREPARE})
        found.start("--quiet")
        yield found


def loop() -> list[str]:
    """The commands of the README's loop; its comments tell what an agent does between them."""
    (block,) = re.findall(r"The loop is five requests:\n\n```bash\n(.+?)```", README, re.DOTALL)
    return [line for line in block.splitlines() if not line.startswith("#")]


def pasted(lab: RunningLab, line: str) -> Any:
    """What a line of the README answers in this lab."""
    line = line.replace("http://127.0.0.1:3111", f"http://127.0.0.1:{lab.port}")
    home = {"HOME": str(lab.data.parent), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        ["bash", "-c", line], cwd=lab.repo, env=home, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def test_the_readme_s_loop_keeps_a_better_idea_of_a_project_that_knows_nothing_of_us(lab: RunningLab) -> None:
    setup, suggest, submit, wait, brief = loop()

    assert pasted(lab, setup)["tag"]["name"] == "mar11"
    assert pasted(lab, suggest)["base_commit_sha"] == lab.base
    commit = lab.commit({"train.py": TRAIN.replace("WIDTH = 48", "WIDTH = 96")})
    submitted = pasted(lab, submit.replace("4c1a9f2", commit[:7]))
    outcome = pasted(lab, wait)
    while not outcome["finished"]:
        outcome = pasted(lab, wait)

    assert submitted["experiment_id"] == "mar11-2"
    assert (outcome["status"], outcome["action"], outcome["val_bpb"]) == ("keep", "keep_commit", 0.904)
    shown = pasted(lab, brief)
    assert shown["best"]["experiment_id"] == "mar11-2"
    results = {e["experiment_id"]: e["val_bpb"] for e in shown["last_results"]}
    assert results == {"mar11-1": 0.952, "mar11-2": 0.904}
    assert not [line for line in lab.output().splitlines() if line.startswith("mar11-")], (
        "up was told --quiet"
    )
