"""gpu::get shows one GPU."""

from __future__ import annotations

from functions.contract import Request, Response, function
from functions.views.gpus import WorkerView, worker_view
from state.ids import GpuId
from state.pool import Pool
from state.settings import Settings


class ReadGpu(Request):
    gpu_id: GpuId


class OneGpu(Response):
    worker: WorkerView


@function("gpu::get", role=("viewer", "worker"))
async def get(request: ReadGpu, pool: Pool, settings: Settings) -> OneGpu:
    """One GPU or CPU slot of the pool: its status, its lease and its health."""
    found = await pool.holding(request.gpu_id)
    return OneGpu(worker=worker_view(found.gpu, found.now, settings.stale_s))
