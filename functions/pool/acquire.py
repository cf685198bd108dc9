"""pool::acquire lends the longest-idle healthy GPU to one experiment."""

from __future__ import annotations

import asyncio

from pydantic import Field

from functions.contract import Call, Command, Response, function
from functions.pool._stores import Stores
from functions.rules.access import Caller
from functions.rules.pool.lending import candidates, why_none
from functions.rules.time_limits import default_timeout_s
from functions.views.budgets import obstacle
from state.ids import ExperimentId
from state.leases import GpuLease
from state.program import as_typed
from state.records import stamp
from state.settings import Settings
from state.wakeups import woken_within

LOOK_AGAIN_S = 2.0


class Acquire(Command):
    experiment_id: ExperimentId
    labels: dict[str, str] = Field(
        default_factory=dict, max_length=32, description="what the GPU must have", examples=[{"room": "east"}]
    )
    min_vram_mb: float = Field(0, ge=0, description="the least memory of the GPU")
    wait: float = Field(0, ge=0, le=50, description="seconds to wait for a GPU")


class Acquired(Response):
    acquired: bool
    gpu_id: str | None
    gpu_index: int | None = None
    fence: int | None = None
    lease_expires_at: str | None = None
    reason: str | None = None


@function("pool::acquire", role=("agent", "worker"), writes=True, keeps_answer=False, held_for="wait")
async def acquire(request: Acquire, call: Call, stores: Stores, settings: Settings) -> Acquired:
    """Lend a GPU with a lease and a fence; the same experiment asking again gets the same lease.

    An agent gets the GPUs that it registered for itself before the lab's; no other caller gets those. A worker gets
    only GPUs that it registered, for its own experiments and those without an owner. If an agent acquires a worker's
    GPU, that worker trains the experiment.
    """
    deadline = asyncio.get_running_loop().time() + request.wait
    with stores.wakeups.subject("*") as woken:
        while True:
            answer = await _lend(request, call.caller, stores, settings)
            left = deadline - asyncio.get_running_loop().time()
            if answer.acquired or left <= 0:
                return answer
            await woken_within(woken, min(left, LOOK_AGAIN_S))


async def _lend(request: Acquire, caller: Caller, stores: Stores, settings: Settings) -> Acquired:
    while True:
        wanted = await stores.pool.wanted(request.experiment_id)
        fits = candidates(
            caller, wanted, labels=request.labels, min_vram_mb=request.min_vram_mb, stale_s=settings.stale_s
        )
        lease = await stores.pool.lend(
            wanted.experiment,
            fits,
            lease_s=default_timeout_s(wanted.policy.budgets.base_s),
            stale_s=settings.stale_s,
            chosen_from=[gpu.gpu_id for gpu in wanted.idle],
            agent=caller.owner if caller.role == "agent" else None,
        )
        match lease:
            case GpuLease():
                return _acquired(lease)
            case "paused":
                return _refused(obstacle(wanted.tag) or "its tag was paused a moment ago")
            case "none":
                return _refused(as_typed(why_none(wanted)))


def _acquired(lease: GpuLease) -> Acquired:
    return Acquired(
        acquired=True,
        gpu_id=lease.gpu_id,
        gpu_index=lease.gpu_index,
        fence=lease.fence,
        lease_expires_at=stamp(lease.expires_at),
    )


def _refused(reason: str) -> Acquired:
    return Acquired(acquired=False, gpu_id=None, reason=reason)
