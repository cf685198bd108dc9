"""A proposed dimension in a running lab: its trial begins and ends by itself, whatever dies meanwhile."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from functions.formats.dimensions import scan
from functions.swarm.rules.trial_verdicts import JUDGED_AFTER, JUDGED_BY, LEAST_VARIED
from tests.journeys.running import FAST, RunningLab, running_lab

pytestmark = [pytest.mark.process, pytest.mark.timeout(400)]

HELPS, NOTHING = "WARMUP", "LABEL_SMOOTHING"
PACE = 5
"""Results after which the search waits for the events process, and the author proposes again."""
TRIALS = ["dimension.adopted", "dimension.promoted", "dimension.reverted"]
MOST_RESULTS = 3 * JUDGED_BY
"""Until the search has stalled twice, and both trials are over."""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[RunningLab]:
    with running_lab(tmp_path / "lab", FAST) as found:
        found.start()
        yield found


def frozen_constants(lab: RunningLab) -> list[dict[str, Any]]:
    """Those of the train.py in the lab's clone, so that the lab does not propose them by itself."""
    found = scan((lab.repo / "train.py").read_text()).found
    return [
        {**declared.model_dump(exclude_none=True), "frozen": True, "frozen_value": value}
        for declared, value in found
    ]


class Searching:
    """A worker without a GPU, and an author who proposes two dimensions again and again."""

    def __init__(self, lab: RunningLab) -> None:
        self.lab = lab
        self.results = 0
        lr = {"name": "LR", "dtype": "float_log", "min": 1e-4, "max": 1e-1}
        policy = {"sampler": "thompson", "stopping.rule": "none", "keep_rule": "strict"}
        lab.post("dimension/define", tag="swarm", dimensions=[lr, *frozen_constants(lab)])
        lab.post("search/set-policy", tag="swarm", policy=policy)
        joins = {"worker_id": "w1", "gpu_type": "H100", "baseline_bpb": 1.0}
        lab.http.post("/register", json=joins).raise_for_status()

    def go_on(self) -> None:
        """Some runs, and all that follows of them; then both dimensions are proposed."""
        for _ in range(PACE):
            self.run()
        self.lab.until_followed()
        self.propose()

    def run(self) -> None:
        """One run; those that vary what helps are better than all before."""
        given = self.lab.http.get("/next_config/w1").raise_for_status().json()
        config: Mapping[str, Any] = given["config_delta"]
        value = 0.99 if HELPS in config else 1.0
        sent = {"worker_id": "w1", "exp_id": given["run_id"], "val_bpb": value, "duration_seconds": 1.0}
        self.lab.http.post("/result", json=sent).raise_for_status()
        self.results += "." not in given["run_id"]  # no retest

    def propose(self) -> None:
        for name in (HELPS, NOTHING):
            proposal = {"name": name, "dtype": "float", "min": 0.0, "max": 0.5, "default_value": 0.0}
            self.lab.post("dimension/propose", tag="swarm", **proposal)

    def states(self) -> dict[str, dict[str, Any]]:
        found = self.lab.http.get("/dimension_proposals").raise_for_status().json()["proposals"]
        return {each["name"]: each for each in found if each["name"] in (HELPS, NOTHING)}

    def is_over(self) -> bool:
        """Whether both trials are."""
        return {each["state"] for each in self.states().values()} == {"promoted", "reverted"}


def events_process_killed(lab: RunningLab) -> None:
    """Kill what calls the followers; the supervisor starts another one."""
    before = lab.process("triggers.events")
    os.kill(before.pid, signal.SIGKILL)
    lab.until(lambda: any(p.pid != before.pid for p in lab.unforked("triggers.events")), "events run again")


def test_what_helps_is_promoted_and_what_does_not_is_removed_although_the_events_process_is_killed(
    lab: RunningLab,
) -> None:
    search = Searching(lab)

    kills = {name: [0, JUDGED_AFTER - PACE] for name in (HELPS, NOTHING)}
    while not search.is_over():
        assert search.results < MOST_RESULTS
        search.go_on()
        for name, each in search.states().items():
            is_tried = each["state"] == "on_trial" and kills[name]
            if is_tried and search.results - each["adopted_results"] >= kills[name][0]:
                kills[name].pop(0)
                events_process_killed(lab)

    found = search.states()
    assert kills == {HELPS: [], NOTHING: []}
    assert {name: each["state"] for name, each in found.items()} == {HELPS: "promoted", NOTHING: "reverted"}
    assert all(each["signal_count"] >= 2 for each in found.values())
    assert all(each["varied"] >= LEAST_VARIED for each in found.values())
    told = lab.post("event/list", tag="swarm", limit=500, types=TRIALS)["events"]
    assert sorted((each["type"], each["subject"]) for each in told) == [
        ("dimension.adopted", NOTHING),
        ("dimension.adopted", HELPS),
        ("dimension.promoted", HELPS),
        ("dimension.reverted", NOTHING),
    ]
    lab.until(lambda: f"{HELPS} matters" in statements(lab), "what was promoted has a claim")
    assert f"{NOTHING} matters" not in statements(lab)
    assert lab.post("lab/audit")["violations"] == []


def statements(lab: RunningLab) -> list[str]:
    """The claims of the swarm, with those that were settled since."""
    return [h["statement"] for h in lab.post("hypothesis/list", tag="swarm", archived=True)["hypotheses"]]
