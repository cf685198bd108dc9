"""pool::deregister takes a GPU out of the pool for good."""

from __future__ import annotations

from functions.contract import Call, Command, Response, function
from functions.rules.access import check_own_gpu
from state.errors import Conflict
from state.ids import GpuId
from state.pool import Pool
from state.refusals import no_gpu


class Deregister(Command):
    gpu_id: GpuId


class Deregistered(Response):
    deregistered: bool


@function("pool::deregister", role=("agent", "operator"), writes=True)
async def deregister(request: Deregister, call: Call, pool: Pool) -> Deregistered:
    """Forget a GPU that is not lent; an agent forgets those that it registered for itself."""
    caller = call.caller
    owner = None if caller.may_do_all else caller.name
    agent = owner if caller.role == "agent" else None
    while True:
        match await pool.deregister(request.gpu_id, agent=agent, owner=owner):
            case "ok":
                return Deregistered(deregistered=True)
            case "unknown":
                raise no_gpu(request.gpu_id)
            case "other":
                if (other := await pool.find(request.gpu_id)) is not None:
                    check_own_gpu(caller, other, request.gpu_id)
            case "held":
                raise Conflict(
                    f"{request.gpu_id} is lent",
                    hint="POST /api/pool/drain first, then wait until it is free"
                    if caller.may_do_all
                    else "give it back first: POST /api/pool/release",
                )
