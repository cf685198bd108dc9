"""pool::dispatch leases idle GPUs to waiting experiments and rings for their workers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress

from functions.contract import Command, Every, On, Response, function
from functions.pool._stores import Stores
from functions.rules.baselines import repeats_due
from functions.rules.keeps.ruling import retest_of
from functions.rules.pool.lending import lendable, pairs
from state.errors import BudgetExhausted, Conflict
from state.leases import GpuLease
from state.records import OPEN, Experiment, Gpu
from state.settings import Settings

log = logging.getLogger(__name__)

ROUNDS = 5
"""Most rounds after conflicts with another dispatcher; the next dispatch does the rest."""

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
    Every("dispatch_s", overlap="queue"),  # the next one finds what arrives meanwhile
    role="operator",
    writes=True,
)
async def dispatch(request: Dispatch, stores: Stores, settings: Settings) -> Dispatched:
    """Give every idle GPU to the next experiment; safe to run twice, anywhere, at once."""
    leased: list[str] = []
    late: dict[str, Experiment] = {}
    passed = 0
    for _ in range(ROUNDS):
        line = await stores.pool.line(start_grace_s=settings.silent_s, passed=passed)
        late |= {e.experiment_id: e for e in line.starting}
        idle = lendable(line, settings.stale_s)
        matched = pairs(line.waiting, idle)
        taken = {gpu_id for _, gpu_id in matched}
        asking = {gpu.gpu_id for gpu in idle if gpu.transport == "http"}
        free = [gpu for gpu in idle if gpu.gpu_id not in taken]
        if line.baselines and await _see_to(line.baselines, free, stores):
            continue
        served = [
            e.experiment_id
            for e, gpu_id in matched
            if await _lend(e, gpu_id, stores, settings, is_asked=gpu_id in asking)
        ]
        leased += served
        is_short = not passed and len(matched) < len(idle) and any(e.retest_of for e in line.waiting)
        passed = RETESTS_PASSED if is_short else passed
        may_repeat = bool(line.baselines and served and len(idle) > len(matched))
        if len(served) == len(matched) and not is_short and not may_repeat:
            break
    for e in late.values():
        gpu = await stores.pool.find(e.gpu_id) if e.gpu_id is not None else None
        if gpu is not None and gpu.transport != "http":
            await _ring(e, gpu.gpu_id, e.fence, stores)
    return Dispatched(leased=leased, enqueued_again=list(late))


async def _see_to(tags: Sequence[str], free: list[Gpu], stores: Stores) -> bool:
    """Release experiments whose baseline has finished. Repeat running baselines on idle GPUs.

    Answers whether more experiments wait than before.
    """
    changed = False
    for name in tags:
        tag = await stores.tags.get(name)
        if tag.baseline_id is None:
            continue
        facts = await stores.experiments.retest_facts(tag.baseline_id)
        baseline = facts.experiment
        if baseline.status not in OPEN:
            try:
                changed |= await stores.tags.open_gate(name, baseline.experiment_id)
            except Conflict as problem:  # the other tags' runs go on
                log.error("%s: %s", name, problem.detail)
        elif tag.paused_at is None and repeats_due(baseline, facts.policy, free):
            with suppress(BudgetExhausted):  # the noise is learned later
                retest = retest_of(baseline, facts.retests, facts.policy)
                changed |= await stores.experiments.begin_retest(retest) is not None
    return changed


async def _lend(e: Experiment, gpu_id: str, stores: Stores, settings: Settings, *, is_asked: bool) -> bool:
    """Lease this GPU to the experiment, and ring for its worker unless that asks for runs by itself.

    False: another dispatcher was faster.
    """
    lease = await stores.pool.lend(e, [gpu_id], lease_s=settings.stale_s, stale_s=settings.stale_s)
    if not isinstance(lease, GpuLease):
        return False
    if not is_asked:
        await _ring(e, lease.gpu_id, lease.fence, stores)
    return True


async def _ring(e: Experiment, gpu_id: str, fence: int, stores: Stores) -> None:
    """Have RQ wake the GPU's worker, which asks pool::next what to run; a bell that waits is not rung twice."""
    bell = {"experiment_id": e.experiment_id, "attempt": e.attempt, "fence": fence}
    await stores.train_queue.enqueue(gpu_id, bell, e.timeout_s)
