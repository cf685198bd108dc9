"""Luck and true gains of the example agent: kept at once, borne out or not by a second run."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.journeys.running import FAST, RunningLab, git, running_lab
from tests.journeys.victims import VICTIMS

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.append(str(EXAMPLES))

SCRIPT = """
import time
from nightjar_report import report

SEED = 1337
GAIN = 0.0  # what the change is truly worth, on every seed
LUCK = 0.0  # what it seems to be worth on the script's own seed alone
NOISE = {1337: 0.0, 104729: 1.0, 209458: -1.0}  # of every script on a seed

value = 5.0 - GAIN + NOISE[SEED] + (-LUCK if SEED == 1337 else LUCK)
report(value, 0.5)
time.sleep(1.0)  # so long there is a child to be killed
print(f"---\\nval_bpb: {value:.6f}\\ntraining_seconds: 1.0")
"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[RunningLab]:
    with running_lab(tmp_path / "lab", FAST) as found:
        found.base = found.commit({"train.py": SCRIPT})
        found.start()
        yield found


@pytest.fixture
def heard() -> list[str]:
    """What the researcher tells of, in order."""
    return []


@pytest.fixture
def researcher(
    lab: RunningLab, heard: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    """The example agent, whose next ideas are in `planned`."""
    import agent  # pyright: ignore[reportMissingImports]  # the examples are on the path
    from proposer import ProposedChange  # pyright: ignore[reportMissingImports]

    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", str(lab.repo), str(clone))
    planned = [
        ProposedChange({"LUCK": 1.2}, "other", "LUCK 0.0 -> 1.2", "It seems to help."),
        ProposedChange({"GAIN": 1.5}, "other", "GAIN 0.0 -> 1.5", "It helps."),
    ]
    monkeypatch.setattr(agent, "propose", lambda *_: planned.pop(0))
    with httpx.Client(base_url=str(lab.http.base_url), timeout=60) as http:
        yield agent.ScriptedAgent(
            agent.LabApi(http, lambda *_, **__: None, 120.0),
            agent.Clone(clone, "ada"),
            "t",
            "ada",
            random.Random(1),
            lambda event, *_, **__: heard.append(event),
        )


def trust(lab: RunningLab, experiment_id: str) -> tuple[str, str | None]:
    e = lab.get(f"experiment/{experiment_id}")["experiment"]
    return e["status"], e["trust"]


def table(lab: RunningLab) -> list[tuple[str, str]]:
    """Status and description of every line of results.tsv."""
    lines = lab.post("report/tsv", tag="t")["tsv"].splitlines()[1:]
    return [(status, text) for *_, status, text in (line.split("\t") for line in lines)]


def nothing_is_open(lab: RunningLab) -> bool:
    stats = lab.post("report/summary", tag="t")["stats"]
    return bool(stats["running"] + stats["queued"] == 0 and lab.get("pool/list")["idle"] == 1)


def found(lab: RunningLab, victim: str) -> psutil.Process:
    """The process, once it is there."""
    process: psutil.Process = lab.until(lambda: VICTIMS[victim](lab), f"{victim} is there")
    return process


def test_luck_is_kept_and_taken_back_and_a_true_gain_stays(
    lab: RunningLab, researcher: Any, heard: list[str]
) -> None:
    lab.setup("t", **{"keep_rule": "confirmed", "budgets.base_s": 0.3, "baseline_first": True})
    researcher.join()
    lab.post("experiment/baseline", tag="t")
    lab.until(lambda: lab.status("t-1.3") == "measured" and nothing_is_open(lab), "the baseline was repeated")

    researcher.try_one("luck")
    kept = lab.post("experiment/best", tag="t")["best"]["experiment_id"], researcher.standing.experiment_id
    for name in (
        "train child",
        "events",
        "RQ worker",
    ):  # between the two runs, or in the middle of the second
        found(lab, name).kill()
    lab.until(lambda: trust(lab, "t-2") == ("discard", "demoted"), "the luck is demoted")
    after_luck = lab.post("experiment/best", tag="t")["best"]["experiment_id"], table(lab)
    lab.until(lambda: nothing_is_open(lab), "the slot is free")

    researcher.try_one("gain")
    lab.until(lambda: trust(lab, "t-3") == ("keep", "confirmed"), "the gain is confirmed")
    lab.until(lambda: nothing_is_open(lab), "all is settled")

    assert kept == ("t-2", "t-2")
    assert after_luck == ("t-1", [("keep", "baseline"), ("discard", "LUCK 0.0 -> 1.2")])
    assert "demoted" in heard
    head = git(researcher.clone.path, "rev-parse", "HEAD")
    best = lab.post("experiment/best", tag="t")["best"]
    assert (best["experiment_id"], best["commit_sha"]) == ("t-3", head)
    assert git(researcher.clone.path, "rev-parse", "HEAD~1") == lab.base
    assert table(lab) == [
        ("keep", "baseline"),
        ("discard", "LUCK 0.0 -> 1.2"),
        ("keep", "GAIN 0.0 -> 1.5"),
    ]
    stats = lab.post("report/summary", tag="t")["stats"]
    assert (stats["total"], stats["kept"], stats["discarded"], stats["crashed"]) == (3, 1, 1, 0)
    parents = [e["parent_ids"] for e in lab.post("experiment/history", tag="t")["experiments"]]
    assert parents == [[], ["t-1"], ["t-1"]]
    told = [
        (e["type"].partition(".")[2], e["subject"])
        for e in lab.post("event/list", tag="t", limit=500)["events"]
        if e["type"] in ("experiment.demoted", "experiment.confirmed", "experiment.promoted", "best.changed")
    ]
    assert told[::-1] == [
        ("changed", "t-1"),
        ("changed", "t-2"),
        ("demoted", "t-2"),
        ("changed", "t-1"),
        ("changed", "t-3"),
        ("confirmed", "t-3"),
    ]
    assert lab.post("lab/audit")["violations"] == []
