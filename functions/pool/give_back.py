"""pool::give_back returns a GPU whose run has died, by the word of the keeper beside it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from functions.contract import Call, Command, Response, function
from functions.pool._bearer import check_bearer
from functions.rules.pool.broken_lease import broken
from state.decisions import Gone
from state.experiments import Experiments
from state.ids import GpuId
from state.policies import Policies
from state.pool import Pool
from state.settings import Settings


class GiveBack(Command):
    gpu_id: GpuId
    fence: int = Field(ge=0)
    reason: Annotated[str, Field(min_length=1, max_length=500)]
    proven: bool = Field(True, description="whether nothing of the run is left on the GPU")


class GivenBack(Response):
    given_back: bool
    experiment_status: str | None
    """What became of the experiment: queued, lost, stopped; empty where it was finished before."""


@function("pool::give_back", role="worker", writes=True)
async def give_back(
    request: GiveBack,
    call: Call,
    pool: Pool,
    experiments: Experiments,
    policies: Policies,
    settings: Settings,
) -> GivenBack:
    """End the lease of a dead run: its experiment waits for another attempt, the GPU is idle once proven empty."""
    await check_bearer(call.caller, request.gpu_id, pool)
    gpu = await pool.get(request.gpu_id)
    if gpu.holder is None:
        status = await pool.flag(
            request.gpu_id,
            clear=("unproven", "footprint") if request.proven else (),
            reason=request.reason,
            fence=request.fence,
        )
        return GivenBack(given_back=status is not None, experiment_status=None)
    if gpu.fence != request.fence:
        return GivenBack(given_back=False, experiment_status=None)
    e = await experiments.get(gpu.holder)
    policy, _ = await policies.get(e.tag)
    why: Gone = "dead" if request.proven else "unproven"
    lease = broken(gpu, e, why, reason=request.reason, max_attempts=policy.max_attempts)
    became = await experiments.break_lease(lease, stale_s=settings.stale_s)
    return GivenBack(given_back=became is not None, experiment_status=became)
