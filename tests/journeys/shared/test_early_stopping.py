"""Early stopping through real processes: what a script's reports are answered, and what becomes of its run."""

from __future__ import annotations

from functions.runs.rules.stopping import REASON
from tests.journeys.running import RunningLab

CERTAIN = {
    "stopping.rule": "stochastic",
    "stopping.max_prob": 1.0,
    "stopping.warmup_runs": 2,
    "stopping.min_peers": 2,
}
"""The worst of three runs is stopped, whatever is drawn for it."""


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
