"""GPUs are lent to agents that acquire one, and by the dispatcher to experiments that wait."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any

from pydantic import Field

from functions.experiments.rules.opening import repeats_due
from functions.experiments.views.hints import obstacle
from functions.kernel.contract import Call, Command, Every, On, Request, Response, function
from functions.kernel.rules.access import Caller, check_own_gpu
from functions.pool.gpus import GpuStores
from functions.pool.rules.leases import given_up
from functions.pool.rules.lending import candidates, lendable, pairs, why_none, with_a_slot
from functions.runs.rules.time_limits import default_timeout_s
from functions.trust.rules.ruling import retest_of
from state.errors import BudgetExhausted, Conflict, Damaged, Unavailable
from state.ids import ExperimentId, GpuId
from state.leases import GpuLease, Holding
from state.noise import unseeded
from state.policy import Policy, TickSource
from state.program import as_typed
from state.records import OPEN, Experiment, Gpu, stamp, view_of
from state.settings import Settings
from state.wakeups import woken_within

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 2.0


class Acquire(Command):
    experiment_id: ExperimentId
    labels: dict[str, str] = Field(
        default_factory=dict, max_length=32, description="what the GPU must have", examples=[{"room": "east"}]
    )
    min_vram_mb: float = Field(0, ge=0, description="the least memory of the GPU")
    wait: float = Field(0, ge=0, le=50, description="seconds to wait for a GPU")


class Acquired(Response):
    acquired: bool
    gpu_id: str | None
    gpu_index: int | None = None
    fence: int | None = None
    lease_expires_at: str | None = None
    reason: str | None = None


@function("pool::acquire", role=("agent", "worker"), writes=True, keeps_answer=False, held_for="wait")
async def acquire(request: Acquire, call: Call, stores: GpuStores, settings: Settings) -> Acquired:
    """Lend a GPU with a lease and a fence; the same experiment asking again gets the same lease.

    An agent gets the GPUs that it registered for itself before the lab's; no other caller gets those. A worker gets
    only GPUs that it registered, for its own experiments and those without an owner. If an agent acquires a worker's
    GPU, that worker trains the experiment.
    """
    deadline = asyncio.get_running_loop().time() + request.wait
    with stores.wakeups.subject("*") as woken:
        while True:
            answer = await _lend(request, call.caller, stores, settings)
            left = deadline - asyncio.get_running_loop().time()
            if answer.acquired or left <= 0:
                return answer
            await woken_within(woken, min(left, LOOK_AGAIN_S))


async def _lend(request: Acquire, caller: Caller, stores: GpuStores, settings: Settings) -> Acquired:
    while True:
        wanted = await stores.pool.wanted(request.experiment_id)
        fits = candidates(
            caller, wanted, labels=request.labels, min_vram_mb=request.min_vram_mb, stale_s=settings.stale_s
        )
        lease = await stores.pool.lend(
            wanted.experiment,
            fits,
            lease_s=default_timeout_s(wanted.policy.budgets.base_s),
            stale_s=settings.stale_s,
            chosen_from=[gpu.gpu_id for gpu in wanted.idle],
            agent=caller.owner if caller.role == "agent" else None,
        )
        match lease:
            case GpuLease():
                return view_of(Acquired, lease, acquired=True, lease_expires_at=stamp(lease.expires_at))
            case "paused":
                return _refused(obstacle(wanted.tag) or "its tag was paused a moment ago")
            case "none":
                return _refused(as_typed(why_none(wanted)))


def _refused(reason: str) -> Acquired:
    return Acquired(acquired=False, gpu_id=None, reason=reason)


ASK_AGAIN_S = 5.0
"""A wake-up may be lost with its connection; the state never is."""


class Next(Request):
    gpu_id: GpuId
    timeout: float = Field(50, ge=0, le=50, description="seconds to wait for a run")


class Work(Response):
    """One attempt, as the lab decided it."""

    experiment_id: str
    attempt: int
    fence: int
    """Sent with every report on the attempt."""
    commit_sha: str
    base_commit: str | None
    """The tag's base: the evaluator is that of this commit, and the patch applies to it."""
    patch_base64: str | None
    """For a clone that lacks the commit."""
    config_delta: dict[str, Any] | None
    """Top-level constants of train.py to set, by name."""
    seed: int | None
    """The script's NIGHTJAR_SEED."""
    metric: str
    evaluator: str
    """Path of the evaluator in the repository."""
    evaluator_files: list[str]
    """Other files and folders that are the base's, too."""
    check: str | None
    """Command of the tag's guards that has to pass before the training, within `check_s`."""
    check_s: float
    evaluator_command: str | None
    """What measures the score after the training; null: the script prints it."""
    splits: list[str]
    """Hidden splits that the evaluator measures, too, and sends on a pipe of their own: hidden, test."""
    budget_s: float
    timeout_s: float
    """Seconds after which the run is ended."""
    traceparent: str | None
    tick_source: TickSource
    """Source of its ticks. report: the script reports them. stdout: loss and progress of the printed progress line.
    gpu::renew is told the same."""


class NextRun(Response):
    work: Annotated[Work | None, Field(description="null: there is none yet, ask again")]


@function("pool::next", role="worker", writes=True, keeps_answer=False, held_for="timeout")
async def next_run(request: Next, call: Call, stores: GpuStores) -> NextRun:
    """The run that a GPU was lent for, for its worker; the same one until gpu::begin begins it.

    The lab lends GPUs by itself, as soon as they are idle. It rings for those of the transport redis by RQ.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + request.timeout
    with stores.wakeups.subject(request.gpu_id) as woken:
        while True:
            held = await stores.pool.holding(request.gpu_id)
            check_own_gpu(call.caller, held.gpu, request.gpu_id)
            if (work := await _work(held, stores)) is not None:
                return NextRun(work=work)
            if (left := deadline - clock()) <= 0:
                return NextRun(work=None)
            await woken_within(woken, min(left, ASK_AGAIN_S))


async def _work(held: Holding, stores: GpuStores) -> Work | None:
    """The leased attempt of the GPU, if it has not begun. An attempt that no worker can train is ended."""
    gpu, e = held.gpu, held.experiment
    if e is None or e.status != "leased" or e.fence != gpu.fence:
        return None
    tag, policy = await stores.tags.get(e.tag), held.policy or Policy()
    assert e.budget_s is not None
    assert e.timeout_s is not None
    try:
        [patch] = await stores.experiments.patches_named([e.sent_diff_id or e.diff_id])
    except (Damaged, Unavailable) as problem:
        if problem.retry_after is not None:
            raise
        await _give_up(gpu, e, problem.detail, stores)
        return None
    splits = ["hidden"] if tag.hidden_split else []
    splits += ["test"] if tag.test_split and await stores.numbers.reads_test(e) else []
    return view_of(
        Work,
        e,
        base_commit=tag.base_commit,
        # a retest has a seed of its own
        config_delta=(unseeded(e.config_delta) if e.retest_of else e.config_delta) or None,
        metric=tag.metric,
        evaluator=tag.evaluator,
        evaluator_files=list(tag.evaluator_files),
        evaluator_command=tag.evaluator_command,
        splits=splits,
        tick_source=policy.stopping.tick_source,
        check=policy.guards.check,
        check_s=policy.guards.check_s,
        patch_base64=None if patch is None else base64.b64encode(patch).decode(),
    )


async def _give_up(gpu: Gpu, e: Experiment, reason: str, stores: GpuStores) -> None:
    log.error("%s cannot be trained: %s", e.experiment_id, reason)
    await stores.experiments.break_lease(gpu.gpu_id, lambda held: given_up(held, gpu.fence, reason))


ROUNDS = 5
"""Most rounds after conflicts with another dispatcher; the next dispatch does the rest."""

RETESTS_PASSED = 1000
"""Retests at the head of the queue that may wait for a class of GPU without holding up others."""


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
async def dispatch(request: Command, stores: GpuStores, settings: Settings) -> Dispatched:
    """Give every idle GPU to the next experiment; safe to run twice, anywhere, at once."""
    leased: list[str] = []
    late: dict[str, Experiment] = {}
    passed = 0
    for _ in range(ROUNDS):
        line = await stores.pool.line(start_grace_s=settings.silent_s, passed=passed)
        late |= {e.experiment_id: e for e in line.starting}
        idle = lendable(line, settings.stale_s)
        waiting = line.waiting
        if any(e.avoided_gpu for e in waiting):
            gpus = (await stores.pool.roster())[1]
            waiting = [with_a_slot(e, gpus) for e in waiting]
        matched = pairs(waiting, idle)
        taken = {gpu_id for _, gpu_id in matched}
        asking = {gpu.gpu_id for gpu in idle if gpu.transport == "http"}
        free = [gpu for gpu in idle if gpu.gpu_id not in taken]
        if line.baselines and await _see_to(line.baselines, free, stores):
            continue
        served = [
            e.experiment_id
            for e, gpu_id in matched
            if await _lend_to(e, gpu_id, stores, settings, is_asked=gpu_id in asking)
        ]
        leased += served
        is_short = (
            not passed
            and len(matched) < len(idle)
            and any(e.retest_of or e.is_confined or e.avoided_gpu for e in waiting)
        )
        passed = RETESTS_PASSED if is_short else passed
        may_repeat = bool(line.baselines and served and len(idle) > len(matched))
        if len(served) == len(matched) and not is_short and not may_repeat:
            break
    for e in late.values():
        gpu = await stores.pool.find(e.gpu_id) if e.gpu_id is not None else None
        if gpu is not None and gpu.transport != "http":
            await _ring(e, gpu.gpu_id, e.fence, stores)
    return Dispatched(leased=leased, enqueued_again=list(late))


async def _see_to(tags: Sequence[str], free: list[Gpu], stores: GpuStores) -> bool:
    """Release experiments whose baseline has finished, repeat baselines on idle GPUs; whether more wait now."""
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


async def _lend_to(
    e: Experiment, gpu_id: str, stores: GpuStores, settings: Settings, *, is_asked: bool
) -> bool:
    """Lease this GPU to the experiment, and ring for its worker if that needs it; False: another was faster."""
    lease = await stores.pool.lend(e, [gpu_id], lease_s=settings.stale_s, stale_s=settings.stale_s)
    if not isinstance(lease, GpuLease):
        return False
    if not is_asked:
        await _ring(e, lease.gpu_id, lease.fence, stores)
    return True


async def _ring(e: Experiment, gpu_id: str, fence: int, stores: GpuStores) -> None:
    """Have RQ wake the GPU's worker, which asks pool::next what to run; a bell that waits is not rung twice."""
    bell = {"experiment_id": e.experiment_id, "attempt": e.attempt, "fence": fence}
    await stores.train_queue.enqueue(gpu_id, bell, e.timeout_s)
