"""pool::give_back returns a GPU whose run has died, as its keeper reports."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from functions.contract import Call, Command, Response, function
from functions.pool._stores import Stores
from functions.rules.access import check_own_gpu
from functions.rules.pool.broken_lease import broken
from state.decisions import BrokenLease
from state.ids import GpuId
from state.leases import Holding


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
async def give_back(request: GiveBack, call: Call, stores: Stores) -> GivenBack:
    """End the lease of a dead run: its experiment waits for another attempt, the GPU is idle once proven empty."""

    def gone(held: Holding) -> BrokenLease | None:
        check_own_gpu(call.caller, held.gpu, request.gpu_id)
        if held.gpu.fence != request.fence or held.experiment is None or held.policy is None:
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
