"""pool::drain takes a GPU out of use after its present run."""

from __future__ import annotations

from functions.contract import Command, Response, function
from state.ids import GpuId
from state.pool import Pool


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
    """Lend a GPU to nobody any more; what runs on it may finish. `undo` lends it again."""
    while True:
        gpu = await pool.get(request.gpu_id)
        if request.undo:
            free = gpu.holder is None and gpu.drained_by == "operator" and gpu.status == "draining"
            moved = gpu.drained_by != "operator" or await pool.mark(
                gpu, "idle" if free else None, drop=("drained_by",)
            )
        else:
            idle = gpu.status == "idle"
            moved = await pool.mark(
                gpu, "draining" if idle else None, fields={"drained_by": "operator"}, reason="operator"
            )
        if moved:
            now = await pool.get(request.gpu_id)
            return Drained(gpu_id=now.gpu_id, status=now.status, experiment_id=now.holder)
