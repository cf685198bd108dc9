"""Who may hand in a result."""

from __future__ import annotations

from functions.rules.access import Caller, check_own, check_own_gpu
from state.errors import Forbidden
from state.pool import Pool
from state.records import Experiment


async def check_result(
    caller: Caller, e: Experiment, attempt: int | None, fence: int | None, pool: Pool
) -> None:
    """Refuse a result of an experiment that is not the caller's: an agent's own, or one that a worker's GPU runs.

    An agent speaks for what it trains itself, never for an attempt of a worker's: leases can be read by everybody.

    Raises:
        Forbidden: it is another's, or a worker does not name the lease that it speaks for.
    """
    if caller.role != "worker":
        check_own(caller, e.owner, e.experiment_id)
        if not caller.may_do_all and e.attempt > 0 and (attempt, fence) != (None, None):
            raise Forbidden(
                f"attempt {e.attempt} of {e.experiment_id} is a worker's: its result is the worker's word",
                hint=f"wait for it with GET /api/experiment/{e.experiment_id}/wait, or stop it",
            )
        return
    gpu = await pool.find(e.gpu_id) if e.gpu_id is not None else None
    check_own_gpu(caller, gpu.owner if gpu is not None else None, e.gpu_id or f"the GPU of {e.experiment_id}")
    if attempt is None or fence is None:
        raise Forbidden(
            "a worker's result names the lease that it was trained under",
            hint="send the attempt and the fence that came with the lease",
        )
