"""pool::acquire lends the longest-idle healthy GPU to one experiment."""

from __future__ import annotations

import asyncio

from pydantic import Field

from functions.contract import Call, Command, Response, function
from functions.pool._bearer import check_bearer
from functions.rules.access import Caller, check_own
from functions.rules.pool.dispatch import suitable
from functions.views.budgets import obstacle
from state.errors import Conflict
from state.experiments import Experiments
from state.ids import Id
from state.policies import Policies
from state.pool import Lease, Pool
from state.records import OPEN, stamp
from state.settings import Settings
from state.tags import Tags
from state.wakeups import Wakeups, woken_within

LOOK_AGAIN_S = 2.0


class Acquire(Command):
    experiment_id: Id
    labels: dict[str, str] = Field(default_factory=dict, max_length=32)
    min_vram_mb: float = Field(0, ge=0)
    wait: float = Field(0, ge=0, le=50, description="seconds to wait for a GPU")


class Acquired(Response):
    acquired: bool
    gpu_id: str | None
    gpu_index: int | None = None
    fence: int | None = None
    lease_expires_at: str | None = None
    reason: str | None = None


@function("pool::acquire", role=("agent", "worker"), writes=True, keeps_answer=False)
async def acquire(
    request: Acquire,
    call: Call,
    experiments: Experiments,
    tags: Tags,
    policies: Policies,
    pool: Pool,
    wakeups: Wakeups,
    settings: Settings,
) -> Acquired:
    """Lend a GPU with a lease and a fence; the same experiment asking again gets the same lease.

    A worker is lent its own GPUs alone, and only for what is its own or nobody's: what an agent trains itself is not
    to be finished by the first worker that asks. An agent that acquires a worker's GPU has that worker train it.
    """
    deadline = asyncio.get_running_loop().time() + request.wait
    async with wakeups.subject("*") as woken:
        while True:
            answer = await _try(request, call.caller, experiments, tags, policies, pool, settings)
            left = deadline - asyncio.get_running_loop().time()
            if answer.acquired or left <= 0:
                return answer
            await woken_within(woken, min(left, LOOK_AGAIN_S))


async def _try(
    request: Acquire,
    caller: Caller,
    experiments: Experiments,
    tags: Tags,
    policies: Policies,
    pool: Pool,
    settings: Settings,
) -> Acquired:
    while True:
        e = await experiments.get(request.experiment_id)
        check_own(caller, e.owner, e.experiment_id)
        if e.status not in OPEN:
            raise Conflict(
                f"{e.experiment_id} is already finished: {e.status}",
                hint="register a new experiment to try again",
                fields={"experiment_status": e.status},
            )
        idle = await pool.idle()
        by_worker = caller.role == "worker"
        candidates = []
        if e.status == "registered":
            candidates = suitable(
                [gpu for gpu in idle if gpu.owner == caller.name] if by_worker else idle,
                now=await pool.now(),
                stale_s=settings.stale_s,
                labels=request.labels,
                min_vram_mb=request.min_vram_mb,
            )
        policy, _ = await policies.get(e.tag)
        lease = await pool.lend(
            e,
            candidates,
            lease_s=2 * policy.budgets.base_s + 60,
            stale_s=settings.stale_s,
            chosen_from=[gpu.gpu_id for gpu in idle],
        )
        if isinstance(lease, Lease):
            if by_worker:
                await check_bearer(caller, lease.gpu_id, pool)  # it may hold another's already
            return Acquired(
                acquired=True,
                gpu_id=lease.gpu_id,
                gpu_index=lease.gpu_index,
                fence=lease.fence,
                lease_expires_at=stamp(lease.expires_at),
            )
        if lease == "paused":
            why = obstacle(await tags.get(e.tag))
            return Acquired(acquired=False, gpu_id=None, reason=why or "its tag was paused a moment ago")
        if lease == "none":
            return Acquired(acquired=False, gpu_id=None, reason=await _reason(e.status, pool))


async def _reason(status: str, pool: Pool) -> str:
    if status != "registered":
        return f"the experiment is {status}: a worker has it or will have it"
    gpus = await pool.ids()
    if not gpus:
        return "no GPU is registered: start a worker with ./nightjar worker --repo PATH"
    return "no idle, healthy GPU fits"
