"""pool::dispatch leases idle GPUs to waiting experiments and hands them to the workers' queues."""

from __future__ import annotations

from functions.contract import Command, Every, On, Response, function
from functions.rules.pool.dispatch import pairs
from functions.rules.pool.health import is_stale
from state.experiments import Experiments
from state.pool import Lease, Pool
from state.records import Experiment
from state.settings import Settings
from state.train_queue import TrainQueue

ROUNDS = 5
"""Looks again after meeting another dispatcher, at most so often; the next tick does the rest."""

RETESTS_PASSED = 1000
"""Retests at the head of the queue that may wait for a class of GPU without holding up others."""


class Dispatch(Command):
    """Nothing to say."""


class Dispatched(Response):
    leased: list[str]
    """Experiments that got a GPU now."""
    enqueued_again: list[str]
    """Experiments whose worker had not begun in time."""


@function(
    "pool::dispatch",
    On("experiment.queued", "gpu.idle", "tag.resumed", debounce="lab"),
    Every("dispatch_s", overlap="queue"),  # what came while it looked is found by the next
    role="operator",
    writes=True,
)
async def dispatch(
    request: Dispatch,
    experiments: Experiments,
    pool: Pool,
    train_queue: TrainQueue,
    settings: Settings,
) -> Dispatched:
    """Give every idle GPU to the next experiment; safe to run twice, anywhere, at once."""
    leased: list[str] = []
    for _ in range(ROUNDS):
        missed = await _one_round(experiments, pool, train_queue, settings, leased)
        if not missed:
            break
    again = await experiments.starting(settings.start_grace_s)
    for e in again:
        if e.gpu_id is not None:
            await train_queue.enqueue(e.gpu_id, payload(e, e.fence), e.timeout_s)
    return Dispatched(leased=leased, enqueued_again=[e.experiment_id for e in again])


async def _one_round(
    experiments: Experiments, pool: Pool, train_queue: TrainQueue, settings: Settings, leased: list[str]
) -> bool:
    """Match and lend once; whether another dispatcher came between, so that it is worth looking again."""
    # a GPU that somebody registered with a token has no queue of ours: its worker comes and asks
    known = {g.gpu_id for g in await pool.idle() if g.owner is None}
    waiting = await experiments.waiting(sorted(known), limit=len(known))
    if any(e.retest_of is not None for e in waiting):
        # One that waits for its own class of GPU must not keep those behind it from the others.
        waiting = await experiments.waiting(sorted(known), limit=len(known) + RETESTS_PASSED)
    if not waiting:
        return False
    now = await pool.now()
    # Read once more, after the queue: whoever was served meanwhile must not make room for one further behind.
    idle = [
        g
        for g in await pool.idle()
        if g.gpu_id in known and not is_stale(g.heartbeat_at, now, settings.stale_s)
    ]
    missed = False
    for e, gpu_id in pairs(waiting, idle):
        lease = await pool.lend(e, [gpu_id], lease_s=settings.stale_s, stale_s=settings.stale_s)
        if not isinstance(lease, Lease):
            missed = True
        elif not lease.held_before:
            await train_queue.enqueue(lease.gpu_id, payload(e, lease.fence), e.timeout_s)
            leased.append(e.experiment_id)
    return missed


def payload(e: Experiment, fence: int) -> dict[str, object]:
    """The request of gpu::train for one leased attempt."""
    return {"experiment_id": e.experiment_id, "attempt": e.attempt, "fence": fence}
