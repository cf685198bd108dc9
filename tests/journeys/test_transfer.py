"""`nightjar transfer` tells a gain from a head start, in a real lab whose script holds its seconds of training."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.commands import nightjar, printed
from tests.journeys.running import RunningLab, git, running_lab

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

SCRIPT = """import time
TIME_BUDGET = 0.2
SOON = 0
BETTER = 0
time.sleep(TIME_BUDGET)
value = 2.0 - 0.5 * BETTER - SOON * (0.5 if TIME_BUDGET < 0.5 else -0.1)
print(f"---\\nval_bpb: {value}")
"""

POLICY: dict[str, Any] = {"budgets.base_s": 0.2, "budgets.overrun": 100}


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[RunningLab]:
    with running_lab(tmp_path) as found:
        found.start()
        found.base = found.commit({"train.py": SCRIPT})
        found.setup("t", **POLICY)
        yield found


def test_a_head_start_is_bound_to_its_budget_and_a_gain_transfers(lab: RunningLab) -> None:
    script = SCRIPT
    lab.until_status(lab.submit(), "keep")
    for name in ("SOON", "BETTER"):
        script = script.replace(f"{name} = 0", f"{name} = 1")
        commit = lab.commit({"train.py": script})
        patch = git(lab.repo, "diff", "--binary", lab.base, commit) + "\n"
        lab.until_status(lab.submit(commit_sha=commit, diff=patch), "keep")

    assert "t-3 against t-2 at 0.8 s, not 0.2 s: at most 40 runs" in printed(lab.data, "transfer", "t-3")
    lab.post("trust/transfer", experiment_id="t-3", begin=True)
    lab.until(lambda: lab.get("experiment/t-transfer1-2")["experiment"]["val_bpb"], "a pair is over")
    lab.process("triggers.events").kill()  # in the middle; `up` starts it again
    better = printed(lab.data, "transfer", "t-3", "--yes")
    soon = nightjar(lab.data, "transfer", "t-2", "--yes")

    assert "transfers: gain over t-2 +0.5 at 0.2 s, +0.5 at 0.8 s" in better
    assert "bound to its budget: gain over t-1 +0.5 at 0.2 s, -0.1 at 0.8 s" in soon.stdout
    assert soon.returncode == 3
    assert "transfer" in printed(lab.data, "show", "t-3")
    assert "| t-2 | t-1 | 0.2 | +0.5 | 0.8 | -0.1 |" in printed(lab.data, "report", "t")
    assert "t-3" in printed(lab.data, "best", "t")
