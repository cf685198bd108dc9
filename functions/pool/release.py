"""pool::release gives a GPU back."""

from __future__ import annotations

from pydantic import Field

from functions.contract import Call, Command, Response, function
from functions.pool._stores import Stores
from functions.rules.access import check_own, check_own_gpu, check_tags, owns_gpu
from state.errors import Conflict
from state.ids import ExperimentId, GpuId
from state.records import Gpu


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
async def release(request: Release, call: Call, stores: Stores) -> Released:
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
            raise in_use(gpu, holder)
        case "other":
            raise lent_to_another(gpu, holder, request.fence)
    return Released(released=True)


def in_use(gpu: Gpu, holder: str) -> Conflict:
    return Conflict(
        f"a worker runs {holder} on {gpu.gpu_id}",
        hint="it gives the GPU back itself; POST /api/experiment/stop ends the run",
        fields={"holder": holder},
    )


def lent_to_another(gpu: Gpu, holder: str, fence: int | None) -> Conflict:
    return Conflict(
        f"{gpu.gpu_id} is lent to {gpu.holder!r} with fence {gpu.fence}, not to {holder!r} with {fence or 'any'}",
        hint="only the holder releases a GPU; an operator drains it with POST /api/pool/drain",
        fields={"holder": gpu.holder},
    )
