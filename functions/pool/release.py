"""pool::release gives a GPU back."""

from __future__ import annotations

from pydantic import Field

from functions.contract import Command, Response, function
from state.errors import Conflict
from state.ids import GpuId, Id
from state.pool import Pool


class Release(Command):
    gpu_id: GpuId
    experiment_id: Id | None = Field(None, description="default: whoever holds the only lease")
    fence: int | None = Field(None, ge=1)


class Released(Response):
    released: bool


@function("pool::release", role=("agent", "worker"), writes=True, keeps_answer=False)
async def release(request: Release, pool: Pool) -> Released:
    """Give a GPU back; one that is free already is fine, another's is a conflict."""
    gpu = await pool.get(request.gpu_id)
    holder = request.experiment_id or gpu.holder
    if holder is None:
        return Released(released=True)
    # whoever asks has not looked at the GPU: after a worker's run its keeper does
    answer = await pool.release(request.gpu_id, holder, request.fence, proven=False)
    if answer == "busy":
        raise Conflict(
            f"a worker runs {holder} on {request.gpu_id}",
            hint="it gives the GPU back itself; POST /api/experiment/stop ends the run",
            fields={"holder": holder},
        )
    if answer == "other":
        raise Conflict(
            f"{request.gpu_id} is lent to {gpu.holder!r} with fence {gpu.fence}, not to {holder!r} with"
            f" {request.fence or 'any'}",
            hint="only the holder releases a GPU; an operator drains it with POST /api/pool/drain",
            fields={"holder": gpu.holder},
        )
    return Released(released=True)
