"""pool::leave takes a GPU out of the pool as its worker ends."""

from __future__ import annotations

from pydantic import Field

from functions.contract import Call, Command, Response, function
from functions.pool._stores import Stores
from functions.rules.access import check_own_gpu
from functions.rules.pool.broken_lease import handed_back
from functions.rules.pool.health import stays_out
from state.decisions import BrokenLease
from state.errors import NotFound
from state.ids import GpuId
from state.leases import Holding
from state.records import Gpu

WHY = "its worker has ended"


class Leave(Command):
    gpu_id: GpuId
    ended: bool = Field(
        False, description="its last run is over and its worker ends now; else it takes no more"
    )
    keeper: str | None = Field(
        None,
        max_length=100,
        description="as registered; where another serves it now, nothing changes",
        examples=["node1:4711:8f3c/90210"],
    )


class Left(Response):
    in_pool: bool
    """Whether the pool still has it: it has a run, or must not be lent when it returns."""


@function("pool::leave", role="worker", writes=True, keeps_answer=False)
async def leave(request: Leave, call: Call, stores: Stores) -> Left:
    """Take no more runs on a GPU, and forget it once its worker has `ended`.

    A leased run that has not begun then waits for another GPU. A GPU that is sick, drained or not proved empty stays
    in the pool, offline, so that it is not lent when it returns.
    """
    pool, gpu_id, keeper = stores.pool, request.gpu_id, request.keeper
    seen: list[Gpu] = []

    def let_go(held: Holding) -> BrokenLease | None:
        check_own_gpu(call.caller, held.gpu, gpu_id)
        seen.append(held.gpu)
        is_ours = keeper is None or held.gpu.keeper in (None, keeper)
        return handed_back(held, held.gpu.fence, WHY) if request.ended and is_ours else None

    try:
        await stores.experiments.break_lease(gpu_id, let_go)
    except NotFound:
        return Left(in_pool=False)
    if not request.ended:
        by = keeper or call.caller.name
        await pool.flag(gpu_id, set_={"leaving": by}, reason="its worker ends", keeper=keeper)
        return Left(in_pool=True)
    gpu = seen[-1]
    if keeper is not None and gpu.keeper not in (None, keeper):
        return Left(in_pool=True)
    if stays_out(gpu):
        await pool.flag(gpu_id, set_={"offline": True}, reason=WHY, keeper=keeper)
        return Left(in_pool=True)
    return Left(in_pool=await pool.deregister(gpu_id, keeper=keeper) in ("held", "other"))
