"""pool::give_back returns a GPU whose run has died, proven empty by the keeper beside it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from functions.contract import Command, Response, function
from state.experiments import Experiments
from state.ids import GpuId
from state.policies import Policies
from state.pool import Pool


class GiveBack(Command):
    gpu_id: GpuId
    fence: int = Field(ge=0)
    reason: Annotated[str, Field(min_length=1, max_length=500)]


class GivenBack(Response):
    given_back: bool
    experiment_status: str | None
    """What became of the experiment: queued, lost, stopped; empty where it was finished before."""


@function("pool::give_back", role="worker", writes=True)
async def give_back(request: GiveBack, pool: Pool, experiments: Experiments, policies: Policies) -> GivenBack:
    """End the lease of a dead run: its experiment waits for another attempt, the GPU is idle again."""
    gpu = await pool.get(request.gpu_id)
    if gpu.fence != request.fence:
        return GivenBack(given_back=False, experiment_status=None)
    if gpu.holder is None:
        proven = gpu.drained_by == "proof" and await pool.mark(
            gpu, "idle" if gpu.status == "draining" else None, drop=("drained_by",), reason=request.reason
        )
        return GivenBack(given_back=proven, experiment_status=None)
    e = await experiments.get(gpu.holder)
    policy, _ = await policies.get(e.tag)
    became = await pool.break_lease(
        gpu,
        e,
        status="draining" if gpu.drained_by else "idle",
        drained_by=gpu.drained_by,
        reason=request.reason,
        max_attempts=policy.max_attempts,
    )
    return GivenBack(given_back=became is not None, experiment_status=became)
