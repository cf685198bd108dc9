"""One run of a swarm's worker: its job, its ticks, its result, and how signals end it.

After the first signal the run finishes, after the second it is given back.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from functions.kernel.lanes import Extension, Order, Source
from functions.runs.rules.ticks import MOST_PROGRESS, is_first_in_bucket
from functions.runs.rules.time_limits import default_timeout_s
from functions.swarm.rules.results import RETURNED, TIMEOUT
from state.errors import NightjarError
from state.records import Footprint
from workers.attempt.job import FailedTraining, TrainedRun, TrainingJob, TrainingResult, Unfit, Watcher
from workers.attempt.runner import TrainingRunner
from workers.lab_client import patiently, until
from workers.swarm.server import SwarmAssignment, SwarmServer

T = TypeVar("T")


class Leaving:
    """The owner's wish to leave, by Ctrl-C or SIGTERM."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self.asked = asyncio.Event()
        """Set once no further run may begin."""
        self._holding: str | None = None
        self.returns = False
        """Whether the present run is given back."""

    def on_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.signalled)

    def signalled(self) -> None:
        """Take the next step: finish the run, give it back, or exit at once."""
        if self.returns:
            os._exit(130)
        if self.asked.is_set():
            self.returns = True
            self._say(
                "leaving at once" if self._holding is None else f"{self._holding} is ended, and given back"
            )
            return
        self.asked.set()
        if self._holding is None:
            self._say("leaving")
        else:
            self._say(f"{self._holding} is finished first, then I leave; Ctrl-C again gives it back now")

    @contextmanager
    def holding(self, run: str) -> Iterator[None]:
        """Name this run in messages while it is under way."""
        self._holding = run
        try:
            yield
        finally:
            self._holding = None

    async def patiently(self, step: Callable[[], Awaitable[T]]) -> T | None:
        """Retry a step while the server is away; None if the owner leaves."""
        return await patiently(step, self.asked, self._say)


log = logging.getLogger(__name__)

METRIC = "val_bpb"
"""Metric that a swarm's train.py prints, whatever it measures. Lower is better."""
TICK_EVERY_S = 0.5
"""Least seconds between two ticks. A report in between is dropped, unless the run is ranked there."""
LONGEST_ERROR = 4000
_PAUSE_S = 10.0


class DeviceRuns:
    """Runs jobs one after another on one device."""

    def __init__(self, runner: TrainingRunner, leaving: Leaving, say: Callable[[str], None]) -> None:
        self._runner = runner
        self._leaving = leaving
        self._say = say

        self._before: Footprint | None = None
        self._left: tuple[TrainingJob, Footprint | None] | None = None
        """The last run, until its device is empty."""

    async def ready(self) -> bool:
        """Wait until a run can begin; False if the owner wants to leave before."""
        while not self._leaving.asked.is_set():
            if (hindrance := await self._hindrance()) is None:
                return True
            self._say(f"{hindrance}; looking again in {_PAUSE_S:g} s")
            await until(self._leaving.asked, _PAUSE_S)
        return False

    async def _hindrance(self) -> str | None:
        """Why no run can begin; None: one can."""
        if self._left is not None and not await self._runner.is_empty(*self._left):
            return f"{self._left[0].experiment_id} has left something on {self._runner.gpu_id}"
        self._left = None
        seen = await self._runner.survey()
        if isinstance(seen, Unfit):
            return seen.reason
        self._before = seen
        return None

    async def of(self, job: TrainingJob, watcher: Watcher) -> tuple[TrainingResult, float]:
        """Run a job until all its processes have ended; answers its result and its duration in seconds."""
        self._left = (job, self._before)
        begun = time.monotonic()
        result = await self._runner.run(job, watcher, metric=METRIC)
        return result, time.monotonic() - begun


class BaselineWatcher:
    """Watcher of a baseline run (see workers.attempt.job.Watcher). The owner ends it by leaving.

    A swarm compares constants, not code, and shows no logs.
    """

    def __init__(self, leaving: Leaving) -> None:
        self._leaving = leaving

    async def built(self, source: Source) -> Order:
        return "continue"

    async def tick(self, metric: float, progress: float) -> Order | Extension:
        return "continue"

    async def poll(self) -> Order:
        return "stop" if self._leaving.asked.is_set() else "continue"

    async def tail(self, text: str) -> None:
        """See Watcher."""


def job_of(given: SwarmAssignment, fence: int) -> TrainingJob:
    """The job of an assignment. Its seed follows from its id, so a repeated assignment has the same seed."""
    job = a_job(given.exp_id, given.config_delta, given.budget_seconds, seed_of(given.exp_id))
    return replace(job, fence=fence, tick_source=given.tick_source)


def a_job(name: str, values: Mapping[str, object], budget_s: float, seed: int | None) -> TrainingJob:
    """A run with these constants."""
    return TrainingJob(
        experiment_id=name,
        attempt=0,
        fence=0,
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
    """A different seed for each run, so that repeats of a config show the noise."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") % 2**31


def result_of(
    given: SwarmAssignment,
    result: TrainingResult,
    *,
    worker_id: str,
    config: Mapping[str, object],
    baseline: float,
    seconds: float,
    is_stopped: bool,
) -> dict[str, Any]:
    """Report of a run. `is_stopped`: the swarm has stopped it."""
    value: float | None = None
    error: str | None = None
    match result:
        case TrainedRun(metric=metric) if math.isfinite(metric):
            value = metric
        case FailedTraining(kind="timeout"):
            error = TIMEOUT
        case FailedTraining(kind=kind, error=why):
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
    if isinstance(result, TrainedRun) and result.hung:
        report["hung"] = True
    if isinstance(result, TrainedRun) and (time := result.time) is not None:
        report |= {"duration_seconds": time.wall_seconds, "cpu_seconds": time.cpu_seconds}
    return report if error is None else {**report, "error": error}


class SwarmTicks(BaselineWatcher):
    """Sends ticks to the swarm. Without an answer the run goes on."""

    def __init__(
        self, server: SwarmServer, given: SwarmAssignment, baseline: float, leaving: Leaving
    ) -> None:
        super().__init__(leaving)
        self._server = server
        self._given = given
        self._baseline = baseline
        self._sent_at = -TICK_EVERY_S
        self._ranked_at: set[float] = set()
        self._extension: Extension | None = None
        self.is_stopped = False
        """Whether the swarm has stopped the run."""

    async def tick(self, metric: float, progress: float) -> Order | Extension:
        if not self.is_stopped and self._is_due(progress):
            await self._tell(metric, progress)
        return "stop" if self.is_stopped else self._extension or "continue"

    async def poll(self) -> Order:
        """See Watcher: only the worker's owner ends a run between two ticks."""
        return "stop" if self._leaving.returns or self.is_stopped else "continue"

    def _is_due(self, progress: float) -> bool:
        is_first = is_first_in_bucket(progress, self._ranked_at)
        return is_first or time.monotonic() - self._sent_at >= TICK_EVERY_S

    async def _tell(self, metric: float, progress: float) -> None:
        self._sent_at = time.monotonic()
        share = min(max(progress, 0.0), MOST_PROGRESS)
        request = {"id": self._given.exp_id, "p": share, "m": metric, **self._beside(metric)}
        try:
            told = await self._server.tick(request)
        except NightjarError as problem:  # refused, or the server is away: the next tick replaces it
            log.warning(
                "a tick of %s at %.2f was not taken: %s", self._given.exp_id, progress, problem.detail
            )
            return
        if told.action == "stop":
            self.is_stopped = True
            log.info("%s is stopped at %.2f: %s", self._given.exp_id, progress, told.reason)
        elif told.action == "extend" and told.budget is not None:
            extra_s = max(0.0, told.budget - self._given.budget_seconds)
            if self._extension is None:
                log.info("%s is extended to %g s", self._given.exp_id, told.budget)
            self._extension = Extension(extra_s=extra_s, budget_s=told.budget)

    def _beside(self, metric: float) -> dict[str, Any]:
        """Further fields of a tick: the difference to the baseline, or the source of a printed loss."""
        if self._given.tick_source == "report":
            return {"d": metric - self._baseline}
        return {"tick_source": self._given.tick_source}


def brief_result(result: Mapping[str, Any]) -> str:
    if result.get("error"):
        return str(result["error"]).partition("\n")[0]
    if (value := result.get("val_bpb")) is None:
        return "stopped early"
    if (delta := result.get("delta_bpb")) is None:
        return f"val_bpb {value:.6f}"
    return f"val_bpb {value:.6f} ({delta:+.6f} against the baseline)"
