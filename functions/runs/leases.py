"""A worker's lease on its run, over Redis and over HTTP: begin, built, renew, stopped."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, model_validator

from functions.experiments.rules.reports import check_open
from functions.kernel.contract import MIB, Call, Command, Response, function
from functions.kernel.lanes import Extension, Order
from functions.kernel.rules.access import check_own_gpu
from functions.runs.rules.stopping import checkpoint, drawn, judge, looks_at, rank_of
from functions.runs.rules.ticks import MOST_PROGRESS, bucket_of, is_within_budget, last_value
from state.change import Change
from state.decisions import Ending
from state.errors import Invalid
from state.experiments import Experiments
from state.ids import ExperimentId
from state.policy import TickSource
from state.pool import Pool
from state.records import Experiment, Footprint, Gpu
from state.settings import Settings


@dataclass(frozen=True)
class LeaseStores:
    experiments: Experiments
    pool: Pool


class OfLease(Command):
    """A worker's message about an attempt; it names the lease."""

    experiment_id: ExperimentId
    attempt: int = Field(ge=1, description="as pool::next has told it", examples=[1])
    fence: int = Field(ge=1, description="the lease's", examples=[17])


async def leased(request: OfLease, call: Call, stores: LeaseStores) -> tuple[Experiment, Gpu | None]:
    """The experiment of a worker's attempt, and its GPU. Raises NotFound, and Forbidden for another worker's GPU."""
    e, gpu_id = await stores.experiments.of_attempt(request.experiment_id, request.attempt)
    gpu = await stores.pool.find(gpu_id) if gpu_id else None
    check_own_gpu(call.caller, gpu, gpu_id or f"the GPU of {e.experiment_id}")
    return e, gpu


async def ranked(
    e: Experiment,
    tick: tuple[float, float],
    bucket: float,
    experiments: Experiments,
    source: TickSource = "report",
) -> Order | Extension:
    """The order for a run at a bucket; a retest is neither ranked nor stopped, since its full result counts."""
    if e.retest_of is not None:
        return "continue"

    async def decide(change: Change) -> Order | Extension:
        facts = await experiments.rank_facts(change, e.experiment_id, e.gpu_id, source)
        policy, now = facts.policy, facts.experiment
        if not looks_at(policy.stopping.rule, bucket):
            return "continue"
        told: str | None = now.told_at(bucket)
        if told is None:
            if (now.status, now.attempt, now.fence) != ("running", e.attempt, e.fence):
                return "lost"
            peers, tag = await experiments.peers(change, e, facts.rank_class, bucket, tick[0])
            at = checkpoint(facts, bucket, peers, tag)
            answer = judge(at, drawn(e.experiment_id, bucket), policy.stopping)
            told = answer.told
            experiments.rank(change, now, rank_of(facts, bucket, tick, tick[0], at, answer))
        if told == "extend":
            granted_s = now.extended_s or policy.budgets.extend_s
            return Extension(granted_s, (e.budget_s or policy.budgets.base_s) + granted_s)
        return "stop" if told == "stop" else "continue"

    return await experiments.change(decide)


class BeginRun(OfLease):
    runner: Annotated[str, Field(min_length=1, max_length=200)] = Field(
        description="the process that runs it, <host>:<pid>:<start>; the same one may ask again",
        examples=["node1:4242:998877"],
    )
    footprint: Footprint | None = Field(
        None, description="what the GPU's memory held before", examples=[{"used_mb": 12.0, "processes": {}}]
    )


class RunBegun(Response):
    begun: bool
    """False: another process has begun it, or the lease is over; then it is not to be run."""


@function("gpu::begin", role="worker", writes=True, keeps_answer=False)
async def begin(request: BeginRun, call: Call, stores: LeaseStores, settings: Settings) -> RunBegun:
    """Begin an attempt under its lease; the fence lets one process do so, which may ask again."""
    e, gpu = await leased(request, call, stores)
    if e.status == "running" and (e.attempt, e.fence) == (request.attempt, request.fence):
        is_ours = gpu is not None and (gpu.fence, gpu.runner) == (request.fence, request.runner)
        return RunBegun(begun=is_ours)
    begun = await stores.experiments.start(
        e,
        attempt=request.attempt,
        fence=request.fence,
        runner=request.runner,
        lease_s=settings.stale_s,
        footprint=request.footprint,
    )
    return RunBegun(begun=begun)


BODY_LIMIT = 6 * MIB


class RunBuilt(OfLease):
    tree_id: Annotated[str, Field(min_length=1, max_length=64)] = Field(
        description="of the files that are trained: the same for the same files",
        examples=["4b825dc642cb6eb9"],
    )
    patch_base64: Annotated[str, Field(max_length=6 * MIB)] | None = Field(
        None,
        description="the patch against the tag's base commit, where none was sent or one that makes other files",
        examples=["ZGlmZiAtLWdpdCBhL3RyYWluLnB5"],
    )
    differs: bool = Field(False, description="the patch that was sent makes other files than the commit")


class RunKnown(Response):
    order: Order
    """continue, or lost: the lease is another's."""


@function("gpu::built", role="worker", writes=True, keeps_answer=False, body_limit=BODY_LIMIT)
async def built(request: RunBuilt, call: Call, stores: LeaseStores) -> RunKnown:
    """Store what code an attempt trains, before it trains."""
    e, _ = await leased(request, call, stores)
    sent = request.patch_base64
    try:
        patch = None if sent is None else base64.b64decode(sent, validate=True)
    except ValueError as problem:  # also of characters that are not ASCII
        raise Invalid(f"patch_base64 is no base64: {problem}", hint="send RFC 4648 base64") from problem
    is_ours = await stores.experiments.note_source(
        e,
        attempt=request.attempt,
        fence=request.fence,
        tree_id=request.tree_id,
        patch=patch,
        differs=request.differs,
    )
    return RunKnown(order="continue" if is_ours else "lost")


class RenewRun(OfLease):
    metric: float | None = Field(None, description="what the script has reported last", examples=[1.07])
    progress: Annotated[float, Field(ge=0, le=MOST_PROGRESS)] | None = Field(
        None, description="how far it was then, of its budget", examples=[0.25]
    )
    tick_source: TickSource = Field(
        "report",
        description="where metric and progress come from: its script has reported them, or printed them; see"
        " pool::next",
    )
    log: Annotated[str, Field(max_length=65536)] | None = Field(
        None, description="the newest lines of its log", examples=["step 100 loss 2.3"]
    )

    @model_validator(mode="after")
    def _whole(self) -> RenewRun:
        if (self.metric is None) != (self.progress is None):
            raise ValueError("metric and progress go together")
        return self


class RunRenewed(Response):
    order: Order
    """continue, stop (end the run, then gpu::stopped), or lost: end it, its lease is another's."""
    extra_s: float | None = None
    """Additional seconds beyond its first time limit, for one of the best runs."""
    budget_s: float | None = None
    """Seconds that it may train in total, with the extension."""


@function("gpu::renew", role="worker", writes=True, keeps_answer=False)
async def renew(request: RenewRun, call: Call, stores: LeaseStores, settings: Settings) -> RunRenewed:
    """Renew a run's lease, store its report and log, and answer the lab's order."""
    experiments = stores.experiments
    e, gpu_id = await experiments.of_attempt(request.experiment_id, request.attempt)
    name = gpu_id or f"the GPU of {e.experiment_id}"
    tick = None if request.metric is None or request.progress is None else (request.metric, request.progress)
    order = await experiments.renew(
        e.experiment_id,
        name,
        request.fence,
        settings.stale_s,
        tick,
        is_base=tick is not None and is_within_budget(tick[1]),
        source=request.tick_source,
        check=lambda gpu: check_own_gpu(call.caller, gpu, name),
    )
    if request.log is not None and order != "lost":
        await experiments.keep_log(e, request.log)
    bucket = None if tick is None else bucket_of(tick[1])
    if tick is None or bucket is None or order != "continue":
        return RunRenewed(order=order)
    told = await ranked(e, tick, bucket, experiments, request.tick_source)
    if isinstance(told, Extension):
        return RunRenewed(order="continue", extra_s=told.extra_s, budget_s=told.budget_s)
    return RunRenewed(order=told)


class RunStopped(Response):
    experiment_id: str
    status: str


@function("gpu::stopped", role="worker", writes=True, keeps_answer=False)
async def stopped(request: OfLease, call: Call, stores: LeaseStores) -> RunStopped:
    """Record that a run was stopped, with its last reported metric."""

    async def decide(change: Change) -> RunStopped:
        run = await stores.experiments.run_facts(change, request.experiment_id, request.attempt)
        e, gpu_id = run.experiment, run.gpu_id
        gpu = await stores.pool.find(gpu_id) if gpu_id else None
        check_own_gpu(call.caller, gpu, gpu_id or f"the GPU of {e.experiment_id}")
        if (e.status, e.attempt, e.fence) == ("stopped", request.attempt, request.fence):
            return change.idle(RunStopped(experiment_id=e.experiment_id, status=e.status))
        check_open(e, request.attempt, request.fence)
        reason, value = e.stop_reason or "stopped", last_value(e.last_metric, e.tick_source)
        ending = Ending(e, "stopped", {"error": reason, "val_bpb": value}, reason=reason)
        await stores.experiments.finish(change, run, ending)
        return RunStopped(experiment_id=e.experiment_id, status="stopped")

    return await stores.experiments.judging(request.experiment_id, decide)
