"""Luck and true gains: kept at once, confirmed or not by a second run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.journeys.running import FAST, RunningLab, running_lab
from tests.journeys.victims import VICTIMS

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


def test_luck_is_kept_and_taken_back_and_a_true_gain_stays(lab: RunningLab) -> None:
    lab.setup("t", **{"keep_rule": "confirmed", "budgets.base_s": 0.3, "baseline_first": True})
    lab.post("experiment/baseline", tag="t")
    lab.until(lambda: lab.status("t-1.3") == "measured" and nothing_is_open(lab), "the baseline was repeated")

    luck = lab.submit(config_delta={"LUCK": 1.2}, description="luck", parent_id="t-1")
    lab.until_status(luck, "keep", "discard")
    # between the two runs, or in the middle of the second
    for name in ("train child", "events", "RQ worker"):
        found(lab, name).kill()
    lab.until(lambda: trust(lab, luck) == ("discard", "demoted"), "the luck is demoted")
    after_luck = lab.post("experiment/best", tag="t")["best"]["experiment_id"], table(lab)
    lab.until(lambda: nothing_is_open(lab), "the slot is free")

    gain = lab.submit(config_delta={"GAIN": 1.5}, description="gain", parent_id="t-1")
    lab.until(lambda: trust(lab, gain) == ("keep", "confirmed"), "the gain is confirmed")
    lab.until(lambda: nothing_is_open(lab), "all is settled")

    assert (luck, gain) == ("t-2", "t-3")
    assert after_luck == ("t-1", [("keep", "baseline"), ("discard", "luck")])
    assert lab.post("experiment/best", tag="t")["best"]["experiment_id"] == gain
    assert table(lab) == [("keep", "baseline"), ("discard", "luck"), ("keep", "gain")]
    stats = lab.post("report/summary", tag="t")["stats"]
    assert (stats["total"], stats["kept"], stats["discarded"], stats["crashed"]) == (3, 1, 1, 0)
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
