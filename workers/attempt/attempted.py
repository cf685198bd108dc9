"""One attempt, from the survey of its GPU until the GPU is given back."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from functions.formats.metrics_block import MEASURES
from state.errors import Conflict, Invalid, Unavailable
from workers.attempt.job import (
    FailedTraining,
    HaltedRun,
    RunLease,
    Runner,
    TrainedRun,
    TrainingJob,
    TrainingResult,
    Unfit,
)

log = logging.getLogger(__name__)
T = TypeVar("T")
Report = tuple[str, Mapping[str, Any]]
"""A function, and the request that it is called with."""

DELIVERY_PATIENCE_S = 600.0
"""Seconds that a finished run tries to report its result while the lab does not answer."""


async def attempted(job: TrainingJob, lease: RunLease, runner: Runner, metric: str) -> str:
    """Train under this lease and report the result; answers the outcome of the attempt."""
    name = job.experiment_id
    before = await runner.survey()
    if isinstance(before, Unfit):
        reason = before.reason
        log.error("%s is unfit for %s: %s", runner.gpu_id, name, reason)
        await delivered(lambda: lease.hand_back(reason))
        return "handed back"
    if not await lease.begin(runner.name, before):
        log.info("%s attempt %d is another's, or over: nothing to do", name, job.attempt)
        return "refused"
    log.info("%s attempt %d begins on %s", name, job.attempt, runner.gpu_id)
    async with renewing(lease, name):
        result = await runner.run(job, lease, metric=metric)
    # at once: the next run waits for both
    outcome, proven = await asyncio.gather(
        delivered(lambda: hand_in(result, job, lease)), runner.is_empty(job, before)
    )
    log.info("%s attempt %d ended: %s", name, job.attempt, outcome)
    if not proven:
        log.error("%s attempt %d left something on its GPU: it is not lent yet", name, job.attempt)
    if outcome != "lost":  # else the GPU is no longer ours
        await delivered(lambda: lease.end(proven=proven))
    return outcome


async def hand_in(result: TrainingResult, job: TrainingJob, lease: RunLease) -> str:
    """Report the result through the functions that agents use; answers the experiment's status."""
    if isinstance(result, HaltedRun) and result.order == "lost":
        return "lost"
    try:
        return await lease.report(*report_of(result, job))
    except Invalid as problem:
        return await lease.report(*report_of(FailedTraining("other", problem.detail), job))
    except Conflict as problem:
        log.info("%s attempt %d: %s", job.experiment_id, job.attempt, problem.detail)
        return "late"


def report_of(result: TrainingResult, job: TrainingJob) -> Report:
    who = {"experiment_id": job.experiment_id, "attempt": job.attempt, "fence": job.fence}
    match result:
        case TrainedRun():
            finite = {name: value for name, value in result.metrics.items() if math.isfinite(value)}
            measures = {name: finite[name] for name in MEASURES if finite.get(name, -1.0) >= 0}
            return "experiment::complete", {
                **who,
                **measures,
                "val_bpb": result.metric,
                "metrics": dict(list(finite.items())[:200]),
                "evaluator_hash": result.evaluator_hash,
                "gpu_class": result.gpu_class,
                "budget_seconds": job.budget_s,
                "score": result.score,
                "reported": result.reported,
                "hung": result.hung,
                **(result.time.model_dump() if result.time else {}),
                **result.hidden,
            }
        case FailedTraining():
            # names of files are any bytes
            error = result.error.encode("utf-8", "backslashreplace").decode()
            return "experiment::crash", {**who, "kind": result.kind, "error": error}
        case HaltedRun():
            return "gpu::stopped", who


@asynccontextmanager
async def renewing(lease: RunLease, name: str) -> AsyncIterator[None]:
    """Renew the lease during the run: a checkout may take longer than a lease, and the runner does not poll then."""
    over = asyncio.Event()
    renewal = asyncio.create_task(_renew_until(over, lease, name))
    try:
        yield
    finally:
        over.set()
        await renewal


async def _renew_until(over: asyncio.Event, lease: RunLease, name: str) -> None:
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(lease.lease_s / 4):
                await over.wait()
                return
        try:
            await lease.poll()  # the runner asks for orders itself
        except Unavailable as problem:
            log.warning("the lease of %s is not renewed: %s", name, problem.detail)
        except Exception:  # a fault beside the run must not end it
            log.exception("the lease of %s is not renewed", name)


async def delivered(step: Callable[[], Awaitable[T]]) -> T:
    """Repeat an idempotent step while the lab does not answer."""
    give_up = asyncio.get_running_loop().time() + DELIVERY_PATIENCE_S
    pause = 0.2
    while True:
        try:
            return await step()
        except Unavailable as problem:
            if asyncio.get_running_loop().time() + pause > give_up:
                raise
            log.warning("%s; handing in again in %.1f s", problem.detail, pause)
            await asyncio.sleep(pause)
            pause = min(pause * 2, 10.0)
