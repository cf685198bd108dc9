"""The time of a real training, from its process to the lab's verdict: of the lab's worker, and in a swarm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from functions.kernel.process.lifecycle import Process
from functions.trust.rules.overruns import HINT
from state.experiments import Experiments
from state.records import Experiment, ReferenceTime, TimeSpent
from tests.labs import add_gpu, idea, open_tag, told
from tests.lane import trained
from tests.workers.attempt.test_runner import CPU, runner
from tests.workers.repository import Repository
from workers.attempt.job import TrainedRun
from workers.swarm.runs import result_of
from workers.swarm.server import SwarmAssignment

pytestmark = pytest.mark.process

BURNED_S = 0.3
TRAIN = f"""
import time
while time.process_time() < {BURNED_S}:
    pass
print("---")
print(f"val_bpb: {{VALUE}}")
print("training_seconds: 0.1")
"""
SHIFT_S = 1000.0


class Lab:
    """A lab with one CPU slot, and what its worker needs."""

    def __init__(self, http: httpx.AsyncClient, process: Process, folder: Path) -> None:
        self.http, self.process = http, process
        self.repo = Repository(folder / "repo")
        self.runner = runner(self.repo, tier="limits")

    async def open(self) -> None:
        await open_tag(self.http, base_commit=self.repo.base, policy={"baseline_first": False})
        await add_gpu(self.http, gpu_id=CPU.gpu_id, gpu_name="cpu", vram_mb=0.0, transport="http")

    async def train(self, value: float) -> Experiment:
        commit = self.repo.commit({"train.py": f"VALUE = {value}\n{TRAIN}"})
        name = (await told(self.http, "/api/experiment/submit", **idea(commit_sha=commit)))["experiment_id"]
        await told(self.http, "/api/pool/dispatch")
        await trained(self.http, self.runner)
        return await Experiments(self.process.lab).get(name)

    async def slow_down(self) -> None:
        """As if the first run had been the baseline, and so much quicker."""
        lab = self.process.lab
        key = lab.keys("reference_times", "mar11")
        for time_class, text in (await lab.hash(key)).items():
            first = ReferenceTime.model_validate_json(text)
            shifted = {
                "baseline": True,
                "wall_seconds": first.wall_seconds - SHIFT_S,
                "cpu_seconds": (first.cpu_seconds or 0.0) - SHIFT_S,
            }
            await lab.command("HSET", key, time_class, first.model_copy(update=shifted).model_dump_json())


async def test_the_lab_judges_a_run_by_the_time_that_its_worker_measured(
    client: httpx.AsyncClient, process: Process, tmp_path: Path
) -> None:
    lab = Lab(client, process, tmp_path)
    await lab.open()

    first, second = await lab.train(1.0), await lab.train(0.9)
    await lab.slow_down()
    over = await lab.train(0.5)

    assert [(e.status, e.over_budget) for e in (first, second)] == [("keep", False)] * 2
    assert (over.status, over.val_bpb, over.over_budget) == ("discard", 0.5, True)
    for e in (first, second, over):
        assert e.training_seconds == 0.1  # what the script says counts for nothing
        assert (e.cpu_seconds or 0.0) >= BURNED_S - 0.1
        assert (e.wall_seconds or 0.0) > 0.0
    waited = (await client.get(f"/api/experiment/{over.experiment_id}/wait")).json()
    assert HINT in waited["next"]


def test_a_swarm_s_worker_sends_the_time_that_it_measured_and_whether_the_run_hung() -> None:
    given = SwarmAssignment.model_validate(
        {"run_id": "swarm-1", "exp_id": "swarm-1", "config_delta": {}, "budget_seconds": 300, "note": ""}
    )
    result = TrainedRun(
        {}, None, "H100", "", 0.9, time=TimeSpent(wall_seconds=301.5, cpu_seconds=290.0), hung=True
    )
    more: dict[str, Any] = {"worker_id": "w1", "config": {}, "baseline": 1.0, "is_stopped": False}

    sent = result_of(given, result, seconds=320.0, **more)

    assert (sent["duration_seconds"], sent["cpu_seconds"], sent["hung"]) == (301.5, 290.0, True)
