"""pool::list shows every GPU."""

from __future__ import annotations

import builtins

from functions.contract import Http, Request, Response, function
from functions.views.gpus import WorkerView, pool_counts, worker_view
from state.pool import Pool
from state.settings import Settings


class ListGpus(Request):
    """Nothing to ask for."""


class GpuList(Response):
    workers: builtins.list[WorkerView]
    total: int
    idle: int
    training: int
    offline: int
    draining: int
    unhealthy: int


@function("pool::list", Http("GET", "/api/pool/list"), Http("POST", "/api/pool/list"), role="viewer")
async def list(request: ListGpus, pool: Pool, settings: Settings) -> GpuList:
    """Every GPU and CPU slot with its lease and health; a pure read."""
    found = await pool.roster()
    return GpuList(
        workers=[worker_view(gpu, found.now, settings.stale_s) for gpu in found.gpus],
        **pool_counts(found.gpus, found.now, settings.stale_s),
    )
