"""pool::deregister takes a GPU out of the pool for good."""

from __future__ import annotations

from functions.contract import Command, Response, function
from state.errors import Conflict
from state.ids import GpuId
from state.pool import Pool
from state.refusals import no_gpu


class Deregister(Command):
    gpu_id: GpuId


class Deregistered(Response):
    deregistered: bool


@function("pool::deregister", role="operator", writes=True)
async def deregister(request: Deregister, pool: Pool) -> Deregistered:
    """Forget a GPU; one that is lent has to be drained first."""
    match await pool.deregister(request.gpu_id):
        case "ok":
            return Deregistered(deregistered=True)
        case "unknown":
            raise no_gpu(request.gpu_id)
        case "held":
            raise Conflict(
                f"{request.gpu_id} is lent", hint="POST /api/pool/drain first, then wait until it is free"
            )
