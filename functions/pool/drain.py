"""pool::drain takes a GPU out of use after its present run."""

from __future__ import annotations

from functions.contract import Command, Response, function
from state.ids import GpuId
from state.pool import Pool, unknown


class Drain(Command):
    gpu_id: GpuId
    undo: bool = False


class Drained(Response):
    gpu_id: str
    status: str
    experiment_id: str | None
    """The run it still finishes."""


@function("pool::drain", role="operator", writes=True)
async def drain(request: Drain, pool: Pool) -> Drained:
    """Lend a GPU to nobody any more; what runs on it may finish. `undo` lends it again, its crashes forgotten."""
    if request.undo:
        status = await pool.flag(
            request.gpu_id,
            clear=("drained", "tripped", "tripped_until", "trips", "consecutive_crashes"),
            reason="an operator took the drain back",
        )
    else:
        status = await pool.flag(request.gpu_id, set_={"drained": True}, reason="an operator drains it")
    if status is None:
        raise unknown(request.gpu_id)
    gpu = await pool.get(request.gpu_id)
    return Drained(gpu_id=gpu.gpu_id, status=status, experiment_id=gpu.holder)
