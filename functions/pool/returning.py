"""GPUs come back: released, given back, left, or swept up after their lease has ended."""

from __future__ import annotations

import asyncio
from typing import Annotated

from pydantic import Field

from functions.kernel.contract import Call, Command, Every, Response, function
from functions.kernel.rules.access import check_own, check_own_gpu, check_tags, owns_gpu
from functions.pool.gpus import GpuStores
from functions.pool.rules.health import is_forgotten, is_newly_silent, stays_out
from functions.pool.rules.leases import broken, handed_back, may_try, reason_of, why_gone
from state.decisions import BrokenLease
from state.errors import Conflict, NotFound
from state.ids import ExperimentId, GpuId
from state.leases import Holding
from state.records import Gpu
from state.settings import Settings


class Release(Command):
    gpu_id: GpuId
    experiment_id: ExperimentId | None = Field(
        None, description="default: the experiment that holds the lease"
    )
    fence: int | None = Field(None, ge=1, description="the lease's", examples=[17])
    proven: bool = Field(
        False, description="whether nothing of the run is left on the GPU, by the word of its worker"
    )


class Released(Response):
    released: bool


@function("pool::release", role=("agent", "worker"), writes=True, keeps_answer=False)
async def release(request: Release, call: Call, stores: GpuStores) -> Released:
    """Give a GPU back; it is fine if it is free already, and a conflict if another experiment holds it."""
    gpu = await stores.pool.get(request.gpu_id)
    holder = request.experiment_id or gpu.holder
    caller = call.caller
    if caller.role == "worker" or gpu.of_agent:
        check_own_gpu(caller, gpu, gpu.gpu_id)
    if holder is None:
        return Released(released=True)
    if caller.is_agent:
        held = await stores.experiments.get(holder)
        check_tags(caller, {"tag": held.tag})
        check_own(caller, held.owner, holder)
    # who is not its worker has not looked at the GPU: after a worker's run its keeper does
    proven = request.proven and (caller.may_do_all or (caller.is_worker and owns_gpu(caller, gpu)))
    match await stores.pool.release(gpu.gpu_id, holder, request.fence, proven=proven):
        case "busy":
            raise Conflict(
                f"a worker runs {holder} on {gpu.gpu_id}",
                hint="it gives the GPU back itself; POST /api/experiment/stop ends the run",
                fields={"holder": holder},
            )
        case "other":
            raise Conflict(
                f"{gpu.gpu_id} is lent to {gpu.holder!r} with fence {gpu.fence}, not to {holder!r} with"
                f" {request.fence or 'any'}",
                hint="only the holder releases a GPU; an operator drains it with POST /api/pool/drain",
                fields={"holder": gpu.holder},
            )
    return Released(released=True)


class GiveBack(Command):
    gpu_id: GpuId
    fence: int = Field(ge=0, description="the lease's", examples=[17])
    reason: Annotated[str, Field(min_length=1, max_length=500)] = Field(
        description="why it cannot train here", examples=["the disk is full"]
    )
    proven: bool = Field(True, description="whether nothing of the run is left on the GPU")
    sick: bool = Field(
        False, description="whether it can train nothing now; it is lent again after good samples"
    )


class GivenBack(Response):
    given_back: bool
    experiment_status: str | None
    """New status of the experiment: queued, lost or stopped; empty if it had finished before."""


@function("pool::give_back", role="worker", writes=True)
async def give_back(request: GiveBack, call: Call, stores: GpuStores) -> GivenBack:
    """End the lease of a dead run: its experiment waits for another attempt, the GPU is idle once proven empty."""

    def gone(held: Holding) -> BrokenLease | None:
        check_own_gpu(call.caller, held.gpu, request.gpu_id)
        if held.gpu.fence != request.fence or held.experiment is None:
            return None
        return broken(
            held.gpu,
            held.experiment,
            "dead" if request.proven else "unproven",
            reason=request.reason,
            max_attempts=held.policy.max_attempts,
            sick=request.reason if request.sick else None,
        )

    if (ended := await stores.experiments.break_lease(request.gpu_id, gone)) is not None:
        return GivenBack(given_back=True, experiment_status=ended.status)
    flagged = await stores.pool.flag(  # nothing holds it, or another lease does
        request.gpu_id,
        clear=("unproven", "footprint") if request.proven else (),
        reason=request.reason,
        fence=request.fence,
    )
    return GivenBack(given_back=flagged is not None, experiment_status=None)


WHY = "its worker has ended"


class Leave(Command):
    gpu_id: GpuId
    ended: bool = Field(
        False, description="its last run is over and its worker ends now; else it takes no more"
    )
    keeper: str | None = Field(
        None,
        max_length=100,
        description="as registered; where another serves it now, nothing changes",
        examples=["node1:4711:8f3c/90210"],
    )


class Left(Response):
    in_pool: bool
    """Whether the pool still has it: it has a run, or must not be lent when it returns."""


@function("pool::leave", role="worker", writes=True, keeps_answer=False)
async def leave(request: Leave, call: Call, stores: GpuStores) -> Left:
    """Take no more runs on a GPU, and forget it once its worker has `ended`.

    A leased run that has not begun then waits for another GPU. A GPU that is sick, drained or not proved empty stays
    in the pool, offline, so that it is not lent when it returns.
    """
    pool, gpu_id, keeper = stores.pool, request.gpu_id, request.keeper
    seen: list[Gpu] = []

    def let_go(held: Holding) -> BrokenLease | None:
        check_own_gpu(call.caller, held.gpu, gpu_id)
        seen.append(held.gpu)
        is_ours = keeper is None or held.gpu.keeper in (None, keeper)
        return handed_back(held, held.gpu.fence, WHY) if request.ended and is_ours else None

    try:
        await stores.experiments.break_lease(gpu_id, let_go)
    except NotFound:
        return Left(in_pool=False)
    if not request.ended:
        by = keeper or call.caller.name
        await pool.flag(gpu_id, set_={"leaving": by}, reason="its worker ends", keeper=keeper)
        return Left(in_pool=True)
    gpu = seen[-1]
    if keeper is not None and gpu.keeper not in (None, keeper):
        return Left(in_pool=True)
    if stays_out(gpu):
        await pool.flag(gpu_id, set_={"offline": True}, reason=WHY, keeper=keeper)
        return Left(in_pool=True)
    return Left(in_pool=await pool.deregister(gpu_id, keeper=keeper) in ("held", "other"))


FORGET_GPU_DAYS = 7.0
"""Days offline after which a GPU that was not drained is forgotten."""
DAY_S = 86400.0


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
async def sweep(request: Command, stores: GpuStores, settings: Settings) -> Swept:
    """Mark what is gone and send its experiments back to the queue; safe to run twice."""
    pool, stale_s = stores.pool, settings.stale_s
    swept = Swept(offline=[], forgotten=[], leases_ended=[], trials=[], experiments={})
    gap_s = stale_s / 2 + settings.sweep_s
    is_grace, (now, gpus) = await asyncio.gather(pool.begin_sweep(gap_s, stale_s), pool.roster())
    if is_grace:
        return swept
    for gpu in gpus:
        if may_try(gpu, now) and await _close_breaker(gpu, stores):
            swept.trials.append(gpu.gpu_id)
        if why_gone(gpu, now, stale_s) is not None:
            await _end_lease(gpu.gpu_id, swept, stores, stale_s)
        elif is_newly_silent(gpu, now, stale_s) and await _take_offline(gpu, stores):
            swept.offline.append(gpu.gpu_id)
        elif is_forgotten(gpu, now, FORGET_GPU_DAYS * DAY_S) and await _forget(gpu, stores):
            swept.forgotten.append(gpu.gpu_id)
    swept.experiments.update(await stores.experiments.close_forgotten())
    return swept


async def _close_breaker(gpu: Gpu, stores: GpuStores) -> bool:
    reason = "may try one run after its crashes"
    tried = await stores.pool.flag(
        gpu.gpu_id, clear=("tripped", "tripped_until"), reason=reason, tripped_until=gpu.tripped_until
    )
    return tried is not None


async def _take_offline(gpu: Gpu, stores: GpuStores) -> bool:
    flagged = await stores.pool.flag(
        gpu.gpu_id, set_={"offline": True}, reason="silent", heartbeat_at=gpu.heartbeat_at, unset="offline"
    )
    return flagged is not None


async def _forget(gpu: Gpu, stores: GpuStores) -> bool:
    reason = f"forgotten after {FORGET_GPU_DAYS:g} days offline"
    return await stores.pool.deregister(gpu.gpu_id, reason=reason, heartbeat_at=gpu.heartbeat_at) == "ok"


async def _end_lease(gpu_id: str, swept: Swept, stores: GpuStores, stale_s: float) -> None:
    """End the lease on a GPU, unless its holder is heard of by now."""

    def gone(held: Holding) -> BrokenLease | None:
        why = why_gone(held.gpu, held.now, stale_s)
        if why is None or held.experiment is None:
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
