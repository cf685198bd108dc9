"""One run of the owner's train.py with the constants of an assignment, and what is reported of it."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from functions.lanes import (
    Extension,
    Failed,
    Order,
    Source,
    Trained,
    TrainingJob,
    TrainingResult,
    Unfit,
    Watcher,
)
from functions.rules.swarm.results import NO_CONSTANT, RETURNED, TIMEOUT
from functions.rules.time_limits import default_timeout_s
from state.records import Footprint
from workers.attempt.runner import TrainingRunner
from workers.swarm.leaving import Leaving
from workers.swarm.server import Assignment

METRIC = "val_bpb"
"""What a train.py prints, whatever it measures: lower is better."""
LONGEST_ERROR = 4000
_PAUSE_S = 10.0


class Runs:
    """Runs one after another on one device."""

    def __init__(self, runner: TrainingRunner, leaving: Leaving, say: Callable[[str], None]) -> None:
        self._runner = runner
        self._leaving = leaving
        self._say = say

        self._before: Footprint | None = None
        self._left: tuple[TrainingJob, Footprint | None] | None = None
        """The last run, until its device was seen to be empty."""

    async def ready(self) -> bool:
        """Wait until a run can begin here; False where the owner wants to leave before."""
        while not self._leaving.is_asked:
            if (hindrance := await self._hindrance()) is None:
                return True
            self._say(f"{hindrance}; looking again in {_PAUSE_S:g} s")
            await self._leaving.pause(_PAUSE_S)
        return False

    async def _hindrance(self) -> str | None:
        """Why no run can begin."""
        if self._left is not None and not await self._runner.is_empty(*self._left):
            return f"{self._left[0].experiment_id} has left something on {self._runner.gpu_id}"
        self._left = None
        seen = await self._runner.survey()
        if isinstance(seen, Unfit):
            return seen.reason
        self._before = seen
        return None

    async def of(self, job: TrainingJob, watcher: Watcher) -> tuple[TrainingResult, float]:
        """Run a job; answers its result, and the seconds that it took. No process of it lives on."""
        self._left = (job, self._before)
        begun = time.monotonic()
        result = await self._runner.run(job, watcher, metric=METRIC)
        return result, time.monotonic() - begun


class Unwatched:
    """See functions.lanes.Watcher: of a run that no swarm knows of. Its owner ends it by leaving."""

    def __init__(self, leaving: Leaving) -> None:
        self._leaving = leaving

    async def built(self, source: Source) -> Order:
        """See Watcher."""
        return "continue"

    async def tick(self, metric: float, progress: float) -> Order | Extension:
        """See Watcher."""
        return "continue"

    async def poll(self) -> Order:
        """See Watcher."""
        return "stop" if self._leaving.is_asked else "continue"

    async def tail(self, text: str) -> None:
        """See Watcher."""


def job_of(given: Assignment, fence: int) -> TrainingJob:
    """An assignment as the runner takes it. Its seed follows from its id: the same one, where it is run again."""
    job = a_job(given.exp_id, given.config_delta, given.budget_seconds, seed_of(given.exp_id), fence=fence)
    return replace(job, tick_source=given.tick_source)


def a_job(
    name: str, values: Mapping[str, object], budget_s: float, seed: int | None, *, fence: int = 0
) -> TrainingJob:
    """A run with these constants."""
    return TrainingJob(
        experiment_id=name,
        attempt=0,
        fence=fence,
        commit_sha="",
        base_commit=None,
        patch=None,
        config_delta=dict(values),
        evaluator="",
        budget_s=budget_s,
        timeout_s=default_timeout_s(budget_s),
        seed=seed,
    )


def seed_of(name: str) -> int:
    """A seed of its own for each run: repeats of one config show how far they differ."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") % 2**31


def not_run_of(given: Assignment, missing: Sequence[str], *, worker_id: str) -> dict[str, Any]:
    """What is reported of an assignment that names what the script has no constant for."""
    return {
        "worker_id": worker_id,
        "exp_id": given.exp_id,
        "config": {},
        "config_delta": given.config_delta,
        "val_bpb": None,
        "delta_bpb": None,
        "duration_seconds": 0.0,
        "error": f"{NO_CONSTANT}: {', '.join(missing)}"[:LONGEST_ERROR],
    }


def result_of(
    given: Assignment,
    result: TrainingResult,
    *,
    worker_id: str,
    config: Mapping[str, object],
    baseline: float,
    seconds: float,
    is_stopped: bool,
) -> dict[str, Any]:
    """What is reported of a run; `is_stopped`: the swarm has stopped it."""
    value: float | None = None
    error: str | None = None
    match result:
        case Trained(metric=metric) if math.isfinite(metric):
            value = metric
        case Failed(kind="timeout"):
            error = TIMEOUT
        case Failed(kind=kind, error=why):
            error = f"{kind}: {why}"[:LONGEST_ERROR].encode("utf-8", "backslashreplace").decode()
        case _ if not is_stopped:
            error = RETURNED
    report = {
        "worker_id": worker_id,
        "exp_id": given.exp_id,
        "config": dict(config),
        "config_delta": given.config_delta,
        "val_bpb": value,
        "delta_bpb": None if value is None else value - baseline,
        "duration_seconds": seconds,
    }
    if isinstance(result, Trained) and result.hung:
        report["hung"] = True
    if isinstance(result, Trained) and (time := result.time) is not None:
        report |= {"duration_seconds": time.wall_seconds, "cpu_seconds": time.cpu_seconds}
    return report if error is None else {**report, "error": error}
