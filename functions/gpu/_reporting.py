"""How the result of a run reaches the lab."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from typing import TypeVar

from functions.contract import Call
from functions.formats.metrics_block import MEASURES
from functions.lanes import Failed, Halted, Trained, TrainingJob, TrainingResult
from state.decisions import Ending
from state.errors import Conflict, Invalid, Unavailable
from state.experiments import Experiments
from state.records import OPEN

log = logging.getLogger(__name__)
T = TypeVar("T")

DELIVERY_PATIENCE_S = 600.0
"""How long a finished run tries to hand in its result while Redis does not answer."""


async def hand_in(result: TrainingResult, job: TrainingJob, call: Call, experiments: Experiments) -> str:
    """Report the result through the same functions that agents use; answers the experiment's status."""
    who: dict[str, object] = {"experiment_id": job.experiment_id, "attempt": job.attempt, "fence": job.fence}
    try:
        match result:
            case Trained():
                finite = {name: value for name, value in result.metrics.items() if math.isfinite(value)}
                measures = {name: finite[name] for name in MEASURES if finite.get(name, -1.0) >= 0}
                completed = await call.invoke(
                    "experiment::complete",
                    {
                        **who,
                        **measures,
                        "val_bpb": result.metric,
                        "metrics": dict(list(finite.items())[:200]),
                        "evaluator_hash": result.evaluator_hash,
                        "gpu_class": result.gpu_class,
                        "budget_seconds": job.budget_s,
                        "score": result.score,
                        "reported": result.reported,
                    },
                )
                return str(completed["status"])
            case Failed():
                error = result.error.encode(
                    "utf-8", "backslashreplace"
                ).decode()  # names of files are any bytes
                crashed = await call.invoke("experiment::crash", {**who, "kind": result.kind, "error": error})
                return str(crashed["status"])
            case Halted(order="stop"):
                return await _stopped(job, experiments)
            case Halted():
                return "lost"
    except Invalid as problem:
        crashed = await call.invoke("experiment::crash", {**who, "kind": "other", "error": problem.detail})
        return str(crashed["status"])
    except Conflict as problem:
        log.info("%s attempt %d: %s", job.experiment_id, job.attempt, problem.detail)
        return "late"


async def _stopped(job: TrainingJob, experiments: Experiments) -> str:
    while True:
        e = await experiments.get(job.experiment_id)
        if (e.attempt, e.fence) != (job.attempt, job.fence) or e.status not in OPEN:
            return "late"
        reason = e.stop_reason or "stopped"
        ending = Ending(e, "stopped", {"error": reason, "val_bpb": e.last_metric}, reason=reason)
        if await experiments.end(ending):
            return "stopped"


async def delivered(step: Callable[[], Awaitable[T]]) -> T:
    """Repeat an idempotent step while Redis does not answer."""
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
