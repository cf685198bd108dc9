"""pool::drain takes a GPU out of use after its present run."""

from __future__ import annotations

from pydantic import Field

from functions.contract import Command, Response, function
from state.ids import GpuId
from state.pool import Pool
from state.refusals import no_gpu


class Drain(Command):
    gpu_id: GpuId
    undo: bool = Field(False, description="let it take runs again")


class Drained(Response):
    gpu_id: str
    status: str
    experiment_id: str | None
    """The experiment that it is lent to."""


@function("pool::drain", role="operator", writes=True)
async def drain(request: Drain, pool: Pool) -> Drained:
    """Do not lend a GPU any more; what runs on it may finish. `undo` lends it again and forgets its crashes."""
    if request.undo:
        forgotten = ("drained", "tripped", "tripped_until", "trips", "consecutive_crashes")
        gpu = await pool.flag(request.gpu_id, clear=forgotten, reason="an operator took the drain back")
    else:
        gpu = await pool.flag(request.gpu_id, set_={"drained": True}, reason="an operator drains it")
    if gpu is None:
        raise no_gpu(request.gpu_id)
    return Drained(gpu_id=request.gpu_id, status=gpu.status, experiment_id=gpu.holder)
