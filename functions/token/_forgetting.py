"""The GPUs of a revoked token leave the pool, whatever runs there."""

from __future__ import annotations

from contextlib import suppress

from functions.rules.pool.broken_lease import broken
from functions.token._stores import Stores
from state.decisions import BrokenLease
from state.errors import NotFound
from state.leases import Holding
from state.records import Gpu

REASON = "the token that registered it was revoked"


async def forget_gpus_of(owner: str, until: float, stores: Stores) -> list[str]:
    """Forget what `owner` registered before `until`; answers the ids. Experiments there are queued again, or end."""
    mine = [g for g in (await stores.pool.roster()).gpus if g.owner == owner and g.registered_at <= until]
    return [gpu.gpu_id for gpu in mine if await _forget(gpu, stores)]


async def _forget(gpu: Gpu, stores: Stores) -> bool:
    with suppress(NotFound):  # another process has removed it
        while True:
            found = await stores.pool.deregister(gpu.gpu_id, reason=REASON, owner=gpu.owner)
            if found != "held":
                return found == "ok"
            await stores.experiments.break_lease(gpu.gpu_id, _gone)
    return False


def _gone(held: Holding) -> BrokenLease | None:
    if held.experiment is None or held.policy is None:
        return None
    most = held.policy.max_attempts
    return broken(held.gpu, held.experiment, "unproven", reason=REASON, max_attempts=most)
