"""gpu::train trains one experiment: queued where it is asked for, run where a GPU was leased for it."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import Field

from functions.contract import Call, Command, Http, Response, function
from functions.lanes import Failed, Halted, Order, Runner, Trained, TrainingJob, TrainingResult, Unfit
from functions.rules.access import check_own
from functions.rules.entering import run_of
from functions.rules.pool.turns import next_turn
from functions.views.budgets import obstacle
from functions.views.hints import Queue, alive, next_step
from state.decisions import Ending
from state.entries import HeldLease, WaitQueue
from state.errors import Conflict, Invalid, Unavailable
from state.experiments import Experiments
from state.ids import GpuId, Id, Sha
from state.pool import Pool, unknown
from state.records import OPEN, Experiment, Tag
from state.settings import Settings
from state.tags import Tags

log = logging.getLogger(__name__)
T = TypeVar("T")

DELIVERY_PATIENCE_S = 600.0
"""How long a finished run tries to hand in its result while Redis does not answer."""
MEASURES = (
    "peak_vram_mb",
    "training_seconds",
    "total_tokens_m",
    "mfu_percent",
    "num_steps",
    "num_params_m",
    "depth",
)


class Train(Command):
    experiment_id: Id
    commit_sha: Sha | None = Field(None, description="must be the registered one")
    config_delta: dict[str, Any] | None = Field(None, description="top-level constants of train.py to set")
    timeout_s: Annotated[float, Field(gt=0, le=7 * 86400)] | None = Field(
        None, description="default: 2 x budget + 60"
    )
    budget_s: Annotated[float, Field(gt=0, le=7 * 86400)] | None = Field(
        None, description="default: the tag's base budget"
    )
    gpu_id: GpuId | None = Field(None, description="wait for this GPU")
    priority: int = Field(0, ge=0, le=7, description="higher first")
    attempt: int | None = Field(None, ge=1)
    fence: int | None = Field(None, ge=1)


class Accepted(Response):
    experiment_id: str
    status: str
    attempt: int
    invocation_id: str
    status_url: str
    queue: Queue
    paused: bool
    """An operator holds its tag's runs back."""
    next: str


class Done(Response):
    experiment_id: str
    attempt: int
    outcome: str


@function("gpu::train", Http("POST", "/api/gpu/train"), role=("agent", "worker"), writes=True)
async def accept(request: Train, call: Call, experiments: Experiments, settings: Settings) -> Accepted:
    """Put a registered experiment into the wait queue; asked again, it answers where the experiment stands."""
    while True:
        facts = await experiments.train_facts(request.experiment_id)
        e = facts.experiment
        check_trainable(request, e, call)
        workers = alive(facts.slots, facts.now, settings.stale_s)
        paused = facts.tag.paused_at is not None
        if e.attempt > 0:
            return accepted(e, await experiments.position(e, workers), len(workers), facts.tag)
        pinned = request.gpu_id or e.pinned_gpu
        if pinned is not None and pinned not in (slot.gpu_id for slot in facts.slots):
            raise unknown(pinned)
        run = run_of(
            facts.policy,
            priority=request.priority,
            budget_s=request.budget_s or e.budget_s,
            timeout_s=request.timeout_s,
            pinned_gpu=pinned,
            config_delta=request.config_delta,
        )
        waits = WaitQueue(facts.rounds, workers, paused=paused)
        # while its tag is paused the GPU that it holds would stand idle
        lease: HeldLease | None = ("returned" if paused else "used") if facts.holds else None
        decide = None if e.retest_of is not None or lease == "used" else next_turn
        queued = await experiments.enqueue(e, run, waits, decide, lease=lease)
        if queued is not None:
            now = e.model_copy(update={"status": queued.status, "attempt": queued.attempt})
            return accepted(now, queued.position, len(workers), facts.tag)


def check_trainable(request: Train, e: Experiment, call: Call) -> None:
    """Refuse to train what is another's, is registered with another commit, or is over.

    Raises:
        Forbidden, Invalid, Conflict: in this order.
    """
    check_own(call.caller, e.owner, e.experiment_id)
    if request.commit_sha is not None and request.commit_sha != e.commit_sha:
        raise Invalid(
            f"{e.experiment_id} is registered with commit {e.commit_sha}, not {request.commit_sha}",
            hint="register another experiment for another commit",
        )
    if e.attempt > 0:
        return
    if e.status not in OPEN:
        raise Conflict(
            f"{e.experiment_id} is already finished: {e.status}",
            hint="register a new experiment to try again",
            fields={"experiment_status": e.status},
        )
    if e.retest_of is not None and (request.config_delta, request.budget_s) != (None, None):
        raise Invalid(
            f"{e.experiment_id} runs {e.retest_of} again, with its constants and its budget",
            hint="leave config_delta and budget_s out; what is to run otherwise is another experiment",
        )


def accepted(e: Experiment, position: int, workers: int, tag: Tag) -> Accepted:
    """Where an experiment that is to be trained stands."""
    queue, invocation = Queue(position=position, workers=workers), f"{e.experiment_id}.{e.attempt}"
    paused = tag.paused_at is not None
    return Accepted(
        experiment_id=e.experiment_id,
        status=e.status,
        attempt=e.attempt,
        invocation_id=invocation,
        status_url=f"/api/invocation/{invocation}",
        queue=queue,
        paused=paused,
        next=next_step(e, queue, obstacle(tag) if paused else None),
    )


@function(
    "gpu::train",
    Http("POST", "/api/gpu/train"),
    Http("POST", "/api/gpu/{gpu_id}/train"),
    role=("agent", "worker"),
    lane="gpu",
    writes=True,
    accept=accept,
)
async def train(
    request: Train,
    call: Call,
    experiments: Experiments,
    tags: Tags,
    pool: Pool,
    runner: Runner,
    settings: Settings,
) -> Done:
    """Train an experiment on a GPU: queued at once, run by the worker that the dispatcher leases for it."""
    e = await experiments.get(request.experiment_id)
    attempt, fence = request.attempt or e.attempt, request.fence or e.fence
    gpu_id = e.gpu_id
    before = await runner.survey()
    if isinstance(before, Unfit):
        await _hand_back(e, fence, before, call, pool)
        return Done(experiment_id=e.experiment_id, attempt=attempt, outcome="handed back")
    begun = await experiments.start(
        e, attempt=attempt, fence=fence, runner=runner.name, lease_s=settings.stale_s, footprint=before
    )
    if not begun or gpu_id is None:
        log.info("%s attempt %d is another's, or over: nothing to do", e.experiment_id, attempt)
        return Done(experiment_id=e.experiment_id, attempt=attempt, outcome="refused")
    tag = await tags.get(e.tag)
    budget = e.budget_s or 300.0
    job = TrainingJob(
        experiment_id=e.experiment_id,
        attempt=attempt,
        fence=fence,
        commit_sha=e.commit_sha,
        base_commit=tag.base_commit,
        patch=await experiments.patch(e),
        config_delta=e.config_delta,
        evaluator=tag.evaluator,
        budget_s=budget,
        timeout_s=e.timeout_s or 2 * budget + 60,
        seed=e.seed,
        traceparent=call.traceparent,
    )
    log.info("%s attempt %d begins on %s", e.experiment_id, attempt, gpu_id)
    watcher = LeaseWatcher(experiments, e.experiment_id, gpu_id, fence, settings.stale_s)
    async with watcher.renewing():
        result = await runner.run(job, watcher, metric=tag.metric)
    # at once: the next run waits for both
    outcome, proven = await asyncio.gather(
        delivered(lambda: hand_in(result, job, call, experiments)), runner.is_empty(job, before)
    )
    log.info("%s attempt %d ended: %s", e.experiment_id, attempt, outcome)
    if outcome == "lost":  # the GPU is no longer ours
        return Done(experiment_id=e.experiment_id, attempt=attempt, outcome=outcome)
    if not proven:
        log.error("%s attempt %d left something on its GPU: it is not lent yet", e.experiment_id, attempt)
    await delivered(lambda: pool.release(gpu_id, e.experiment_id, fence, proven=proven))
    return Done(experiment_id=e.experiment_id, attempt=attempt, outcome=outcome)


async def _hand_back(e: Experiment, fence: int, unfit: Unfit, call: Call, pool: Pool) -> None:
    """Leave the experiment to another GPU, with no attempt used up: this one is sick, and nothing was tried."""
    gpu_id = e.gpu_id
    if gpu_id is None or e.status != "leased":
        return
    log.error("%s is unfit for %s: %s", gpu_id, e.experiment_id, unfit.reason)
    sick = {"sick": unfit.reason, "good_samples": 0}
    # first sick, then free: between the two it would be lent again
    await delivered(lambda: pool.flag(gpu_id, set_=sick, reason=unfit.reason, fence=fence))
    back = {"gpu_id": gpu_id, "fence": fence, "reason": unfit.reason[:500]}
    await delivered(lambda: call.invoke("pool::give_back", back))


@dataclass(frozen=True)
class LeaseWatcher:
    """The lab's side of the running attempt: every look renews the lease and brings orders back."""

    experiments: Experiments
    experiment_id: str
    gpu_id: str
    fence: int
    lease_s: float

    async def tick(self, metric: float, progress: float) -> Order:
        tick = (metric, progress)
        return await self.experiments.renew(self.experiment_id, self.gpu_id, self.fence, self.lease_s, tick)

    async def poll(self) -> Order:
        return await self.experiments.renew(self.experiment_id, self.gpu_id, self.fence, self.lease_s)

    async def tail(self, text: str) -> None:
        await self.experiments.keep_log(self.experiment_id, text)

    @asynccontextmanager
    async def renewing(self) -> AsyncIterator[None]:
        """Renew beside the run: checking the code out may take longer than a lease, and nobody polls meanwhile."""
        over = asyncio.Event()
        renewal = asyncio.create_task(self._renew_until(over))
        try:
            yield
        finally:
            over.set()
            await renewal

    async def _renew_until(self, over: asyncio.Event) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.lease_s / 4):
                    await over.wait()
                    return
            try:
                await self.poll()  # an order is the runner's to obey: it asks for itself
            except Unavailable as problem:
                log.warning("the lease of %s is not renewed: %s", self.experiment_id, problem.detail)
            except Exception:  # a fault beside the run must not end it
                log.exception("the lease of %s is not renewed", self.experiment_id)


async def hand_in(result: TrainingResult, job: TrainingJob, call: Call, experiments: Experiments) -> str:
    """Report the result through the same functions that agents use; answers the experiment's status."""
    who: dict[str, object] = {"experiment_id": job.experiment_id, "attempt": job.attempt, "fence": job.fence}
    try:
        match result:
            case Trained():
                finite = {name: value for name, value in result.metrics.items() if math.isfinite(value)}
                measures = {name: finite[name] for name in MEASURES if finite.get(name, -1.0) >= 0}
                completed = await call.invoke(
                    "experiment::complete",
                    {
                        **who,
                        **measures,
                        "val_bpb": result.metric,
                        "metrics": dict(list(finite.items())[:200]),
                        "evaluator_hash": result.evaluator_hash,
                        "gpu_class": result.gpu_class,
                        "budget_seconds": job.budget_s,
                    },
                )
                return str(completed["status"])
            case Failed():
                crashed = await call.invoke(
                    "experiment::crash", {**who, "kind": result.kind, "error": result.error}
                )
                return str(crashed["status"])
            case Halted(order="stop"):
                return await _stopped(await experiments.get(job.experiment_id), job, experiments)
            case Halted():
                return "lost"
    except Invalid as problem:
        crashed = await call.invoke("experiment::crash", {**who, "kind": "other", "error": problem.detail})
        return str(crashed["status"])
    except Conflict as problem:
        log.info("%s attempt %d: %s", job.experiment_id, job.attempt, problem.detail)
        return "late"


async def _stopped(e: Experiment, job: TrainingJob, experiments: Experiments) -> str:
    reason = e.stop_reason or "stopped"
    if e.attempt != job.attempt or e.fence != job.fence or e.status not in OPEN:
        return "late"
    ending = Ending(e, "stopped", {"error": reason, "val_bpb": e.last_metric}, reason=reason)
    return "stopped" if await experiments.end(ending) else "late"


async def delivered(step: Callable[[], Awaitable[T]]) -> T:
    """Repeat an idempotent step while Redis does not answer."""
    give_up = asyncio.get_running_loop().time() + DELIVERY_PATIENCE_S
    pause = 0.2
    while True:
        try:
            return await step()
        except Unavailable as problem:
            if asyncio.get_running_loop().time() + pause > give_up:
                raise
            log.warning("%s; handing in again in %.1f s", problem.detail, pause)
            await asyncio.sleep(pause)
            pause = min(pause * 2, 10.0)
