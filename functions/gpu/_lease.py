"""The lab's side of the lease under which a worker trains one attempt."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from functions.contract import Call, Command
from functions.gpu._stores import Stores
from functions.lanes import Extension, Order, Source
from functions.rules.access import check_own_gpu
from functions.rules.stopping.judging import checkpoint, drawn, judge, rank_of
from functions.rules.stopping.stoppers import looks_at
from state.change import Change
from state.experiments import Experiments
from state.ids import ExperimentId
from state.policy import TickSource
from state.records import Experiment, Footprint, Gpu


class OfLease(Command):
    """A worker's message about an attempt; it names the lease."""

    experiment_id: ExperimentId
    attempt: int = Field(ge=1, description="as pool::next has told it", examples=[1])
    fence: int = Field(ge=1, description="the lease's", examples=[17])


@dataclass(frozen=True)
class AttemptLease:
    """The lab's side of an attempt, for one message of its worker."""

    stores: Stores
    call: Call
    experiment: Experiment
    """As it was leased."""
    attempt: int
    fence: int
    lease_s: float

    @property
    def gpu_id(self) -> str:
        return self.experiment.gpu_id or "none"

    async def begin(self, runner: str, before: Footprint | None) -> bool:
        """Begin the attempt; False: another process has begun it, or the lease is over."""
        return await self.stores.experiments.start(
            self.experiment,
            attempt=self.attempt,
            fence=self.fence,
            runner=runner,
            lease_s=self.lease_s,
            footprint=before,
        )

    async def built(self, source: Source) -> Order:
        """Store which code the attempt trains."""
        e = self.experiment
        is_ours = await self.stores.experiments.note_source(
            e,
            attempt=self.attempt,
            fence=self.fence,
            tree_id=source.tree_id,
            patch=source.patch,
            differs=source.differs,
        )
        return "continue" if is_ours else "lost"


async def lease_of(
    request: OfLease, call: Call, stores: Stores, lease_s: float
) -> tuple[AttemptLease, Gpu | None]:
    """The lease that a worker names, and the GPU that the attempt was lent.

    Raises:
        NotFound: no such experiment. Forbidden: it was lent another's GPU.
    """
    e, gpu_id = await stores.experiments.of_attempt(request.experiment_id, request.attempt)
    gpu = await stores.pool.find(gpu_id) if gpu_id else None
    check_own_gpu(call.caller, gpu, gpu_id or f"the GPU of {e.experiment_id}")
    return AttemptLease(stores, call, e, request.attempt, request.fence, lease_s), gpu


async def ranked(
    e: Experiment,
    tick: tuple[float, float],
    bucket: float,
    experiments: Experiments,
    source: TickSource = "report",
) -> Order | Extension:
    """The order for a run at a bucket, given its (metric, progress).

    A retest is neither ranked nor stopped, because its full result is compared with the first run's.
    """
    if e.retest_of is not None:
        return "continue"

    async def decide(change: Change) -> Order | Extension:
        facts = await experiments.rank_facts(e.experiment_id, e.gpu_id, source, change)
        policy, now = facts.policy, facts.experiment
        if not looks_at(policy.stopping.rule, bucket):
            return "continue"
        told: str | None = now.told_at(bucket)
        if told is None:
            if (now.status, now.attempt, now.fence) != ("running", e.attempt, e.fence):
                return "lost"
            peers, tag = await experiments.peers(e, facts.rank_class, bucket, tick[0], change)
            at = checkpoint(facts, bucket, peers, tag)
            answer = judge(at, drawn(e.experiment_id, bucket), policy.stopping)
            told = answer.told
            experiments.rank(change, now, rank_of(facts, bucket, tick, tick[0], at, answer))
        if told == "extend":
            granted_s = now.extended_s or policy.budgets.extend_s
            return Extension(granted_s, (e.budget_s or policy.budgets.base_s) + granted_s)
        return "stop" if told == "stop" else "continue"

    return await experiments.change(decide)
