"""pool::sweep ends leases that ran out, marks silent GPUs, and ends experiments whose agent is silent."""

from __future__ import annotations

import asyncio

from functions.contract import Command, Every, Response, function
from functions.pool._stores import Stores
from functions.rules.pool.breaker import may_try
from functions.rules.pool.broken_lease import broken, reason_of, why_gone
from functions.rules.pool.health import is_forgotten, is_newly_silent
from state.decisions import BrokenLease
from state.leases import Holding
from state.records import Gpu
from state.settings import Settings

FORGET_GPU_DAYS = 7.0
"""Days offline after which a GPU that was not drained is forgotten."""
DAY_S = 86400.0


class Sweep(Command):
    """Nothing to say."""


class Swept(Response):
    offline: list[str]
    forgotten: list[str]
    """GPUs that left the pool after many days offline."""
    leases_ended: list[str]
    """GPUs whose lease was ended."""
    trials: list[str]
    """GPUs whose breaker has cooled down: they may try one run."""
    experiments: dict[str, str]
    """New status of experiments: queued, lost or stopped."""


@function("pool::sweep", Every("sweep_s"), role="operator", writes=True)
async def sweep(request: Sweep, stores: Stores, settings: Settings) -> Swept:
    """Mark what is gone and send its experiments back to the queue; safe to run twice."""
    pool, stale_s = stores.pool, settings.stale_s
    swept = Swept(offline=[], forgotten=[], leases_ended=[], trials=[], experiments={})
    gap_s = stale_s / 2 + settings.sweep_s
    is_grace, roster = await asyncio.gather(pool.begin_sweep(gap_s, stale_s), pool.roster())
    if is_grace:
        return swept
    for gpu in roster.gpus:
        if may_try(gpu, roster.now) and await _close_breaker(gpu, stores):
            swept.trials.append(gpu.gpu_id)
        if why_gone(gpu, roster.now, stale_s) is not None:
            await _end_lease(gpu.gpu_id, swept, stores, stale_s)
        elif is_newly_silent(gpu, roster.now, stale_s) and await _take_offline(gpu, stores):
            swept.offline.append(gpu.gpu_id)
        elif is_forgotten(gpu, roster.now, FORGET_GPU_DAYS * DAY_S) and await _forget(gpu, stores):
            swept.forgotten.append(gpu.gpu_id)
    swept.experiments.update(await stores.experiments.close_forgotten())
    return swept


async def _close_breaker(gpu: Gpu, stores: Stores) -> bool:
    reason = "may try one run after its crashes"
    tried = await stores.pool.flag(
        gpu.gpu_id, clear=("tripped", "tripped_until"), reason=reason, tripped_until=gpu.tripped_until
    )
    return tried is not None


async def _take_offline(gpu: Gpu, stores: Stores) -> bool:
    flagged = await stores.pool.flag(
        gpu.gpu_id, set_={"offline": True}, reason="silent", heartbeat_at=gpu.heartbeat_at, unset="offline"
    )
    return flagged is not None


async def _forget(gpu: Gpu, stores: Stores) -> bool:
    reason = f"forgotten after {FORGET_GPU_DAYS:g} days offline"
    return await stores.pool.deregister(gpu.gpu_id, reason=reason, heartbeat_at=gpu.heartbeat_at) == "ok"


async def _end_lease(gpu_id: str, swept: Swept, stores: Stores, stale_s: float) -> None:
    """End the lease on a GPU, unless its holder is heard of by now."""

    def gone(held: Holding) -> BrokenLease | None:
        why = why_gone(held.gpu, held.now, stale_s)
        if why is None or held.experiment is None or held.policy is None:
            return None
        reason = reason_of(held.gpu, held.experiment, why)
        return broken(held.gpu, held.experiment, why, reason=reason, max_attempts=held.policy.max_attempts)

    if (ended := await stores.experiments.break_lease(gpu_id, gone)) is None:
        return
    swept.leases_ended.append(gpu_id)
    if ended.why == "silent":
        swept.offline.append(gpu_id)
    if ended.status:
        swept.experiments[ended.experiment.experiment_id] = ended.status
