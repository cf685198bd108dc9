"""Who may speak for a GPU."""

from __future__ import annotations

from functions.rules.access import Caller, check_own_gpu
from state.pool import Pool


async def check_bearer(caller: Caller, gpu_id: str, pool: Pool) -> None:
    """Refuse a worker the GPU of another.

    Raises:
        NotFound: there is no such GPU. Forbidden: it is another's.
    """
    if not caller.may_do_all:
        check_own_gpu(caller, (await pool.get(gpu_id)).owner, gpu_id)
