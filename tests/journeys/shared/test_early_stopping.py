"""Early stopping through real processes: what a script's reports are answered, and what becomes of its run."""

from __future__ import annotations

import pytest

from functions.runs.rules.stopping import REASON
from tests.journeys.running import RunningLab

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

TRAIN = """
import time
from nightjar_report import report

VALUE = 1.0
STEPS = 20
REPORTS = True

for step in range(1, STEPS + 1):
    time.sleep(0.02)
    if REPORTS:
        report(VALUE + 1 - step / STEPS, step / STEPS)
print(f"---\\nval_bpb: {VALUE}")
"""
CERTAIN = {
    "stopping.rule": "stochastic",
    "stopping.max_prob": 1.0,
    "stopping.warmup_runs": 2,
    "stopping.min_peers": 2,
}
"""The worst of three runs is stopped, whatever is drawn for it."""


def test_a_run_that_ranks_last_is_stopped_on_its_way_and_remembered(lab: RunningLab) -> None:
    reports = lab.commit({"train.py": TRAIN})
    lab.setup("cut", **CERTAIN)
    for value in (1.0, 1.1):
        peer = lab.submit("cut", commit_sha=reports, config_delta={"VALUE": value})
        lab.until_status(peer, "keep", "discard")

    worst = lab.submit("cut", commit_sha=reports, config_delta={"VALUE": 5.0})
    found = lab.until_status(worst, "stopped", "keep", "discard", "crash")

    e = found["experiment"]
    assert (e["status"], e["error"], e["attempt"]) == ("stopped", REASON, 1)
    assert e["last_progress"] == 0.15  # the first report within the first bucket
    assert e["val_bpb"] == pytest.approx(5.85)
    ticks = [tick[0] for tick in found["ticks"]]
    assert ticks[-1] == 0.15
    assert {*ticks} <= {0.05, 0.1, 0.15}  # between two requests of the worker the newest replaces the others
    outcome = lab.get(f"experiment/{worst}/wait?until=finished")
    assert (outcome["status"], outcome["progress"], outcome["action"]) == ("stopped", 0.15, "git_reset")
    lab.until_idle()
    assert lab.post("lab/audit")["violations"] == []


UNMODIFIED = """
import time

VALUE = 1.0
ENDS = False

def progress(percent):
    line = f"step {percent:05d} ({percent:.1f}%) | loss: {3 * VALUE:.6f} | lrm: 1.00 | dt: 300ms | mfu: 40.0%"
    print(f"\\r{line}    ", end="", flush=True)

for percent in range(21):
    progress(percent)
while not ENDS:
    time.sleep(0.05)
progress(100)
import prepare
print(f"\\n---\\nval_bpb: {VALUE}")
"""
"""It knows nothing of report; it stays a fifth of its way, unless it `ENDS`."""


def stop_once_ranked(lab: RunningLab, peer: str) -> None:
    lab.until(lambda: lab.get(f"experiment/{peer}")["experiment"]["told"], f"{peer} is ranked")
    lab.post("experiment/stop", experiment_id=peer)
    lab.until_status(peer, "stopped")


def test_a_script_that_only_prints_its_progress_is_stopped_like_one_that_reports(lab: RunningLab) -> None:
    unmodified = lab.commit({"train.py": UNMODIFIED})
    lab.setup("prints", **CERTAIN, **{"stopping.tick_source": "stdout", "budgets.base_s": 300})
    for value in (1.0, 1.1):
        peer = lab.submit("prints", commit_sha=unmodified, config_delta={"VALUE": value})
        stop_once_ranked(lab, peer)

    worst = lab.submit("prints", commit_sha=unmodified, config_delta={"VALUE": 5.0})
    found = lab.until_status(worst, "stopped", "keep", "discard", "crash")
    best = lab.submit("prints", commit_sha=unmodified, config_delta={"VALUE": 0.9, "ENDS": True})
    kept = lab.until_status(best, "stopped", "keep", "discard", "crash")

    e = found["experiment"]
    assert (e["status"], e["error"], e["val_bpb"]) == ("stopped", REASON, None)
    assert (e["last_metric"], e["tick_source"]) == (15.0, "stdout")
    assert 0.15 <= e["last_progress"] <= 0.2
    assert (kept["experiment"]["status"], kept["experiment"]["val_bpb"]) == ("keep", 0.9)
    lab.until_idle()
    assert lab.post("lab/audit")["violations"] == []
