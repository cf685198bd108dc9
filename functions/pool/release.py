"""pool::release gives a GPU back."""

from __future__ import annotations

from pydantic import Field

from functions.contract import Call, Command, Response, function
from functions.rules.access import check_own, check_own_gpu, check_tags
from state.errors import Conflict
from state.experiments import Experiments
from state.ids import GpuId, Id
from state.pool import Pool


class Release(Command):
    gpu_id: GpuId
    experiment_id: Id | None = Field(None, description="default: whoever holds the only lease")
    fence: int | None = Field(None, ge=1)


class Released(Response):
    released: bool


@function("pool::release", role=("agent", "worker"), writes=True, keeps_answer=False)
async def release(request: Release, call: Call, pool: Pool, experiments: Experiments) -> Released:
    """Give a GPU back; one that is free already is fine, another's is a conflict."""
    gpu = await pool.get(request.gpu_id)
    holder = request.experiment_id or gpu.holder
    if call.caller.role == "worker":
        check_own_gpu(call.caller, gpu.owner, gpu.gpu_id)
    if holder is None:
        return Released(released=True)
    if call.caller.role == "agent":
        held = await experiments.get(holder)
        check_tags(call.caller, {"tag": held.tag})
        check_own(call.caller, held.owner, holder)
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
