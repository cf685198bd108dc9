"""A simulated night of a swarm that drafts its programs ahead, by the rules of the server.

Runs tick at the server's buckets, and are ranked among all runs that reached the bucket before. An author takes 30 s
for a program, and writes one at a time.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from bench._planted import DIMENSIONS, GAINS, SIGMA, Truth
from bench._swarm_night import POLICY, TAG, Night
from functions.beliefs.rules.sharing import reference_config
from functions.pi.rules.predicting import RESAMPLES, Prediction, predicted
from functions.pi.rules.stepping import (
    PipelineTerms,
    drafted,
    is_due,
    left_of,
    may_deploy,
    next_step,
    present_decision,
    wants_draft,
    written,
)
from functions.runs.rules.stopping import standing
from state.policy import BUCKETS
from state.program_facts import OutlierRun, PipelineFacts, PipelineState, PipelineStep
from state.records import BatchDecision, Experiment, Hypothesis, Pipeline, SwarmWorker

LOOKED_AT: Final = 20
"""Newest results that are checked for outliers."""
AUTHOR_S: Final = 30.0
FIRST_PROGRAM: Final = 50
"""Results after which workers get the first generated program."""
NEWEST: Final = 100
"""Finished runs that a prediction uses."""
FALLS: Final = 0.3
"""Decrease of the metric during a run."""
TRENDS: Final = 0.2
"""Standard deviation of that decrease between runs, as a share of it."""
BLURRED: Final = 2.0
"""Further noise of a tick at the beginning of a run, in sigmas. It falls to 0 at the end."""


@dataclass(frozen=True)
class EndedBatch:
    results: int
    is_hit: bool
    """Its draft was ready, and confirmed."""
    has_changed: bool
    """Its decision differs from that of the batch before."""
    lag_s: float
    """Seconds from its decision until its text is served."""
    bank: float
    deploys: bool


def rivals() -> list[Hypothesis]:
    """Two rival claims for each range: its upper half, or its lower half, is better than its middle."""
    middle = reference_config(DIMENSIONS, {})
    return [
        Hypothesis(
            hypothesis_id=f"{name}-{side}",
            tag=TAG,
            statement=f"{name} is best in its {side} half",
            dimensions=[name],
            config_constraint={name: {end: middle[name]}},
            reference_config=middle,
            created_at=0.0,
        )
        for name in GAINS
        for side, end in (("upper", "min"), ("lower", "max"))
    ]


class SimulatedPipeline:
    """pipeline::follow in memory, with its own predictor and author."""

    def __init__(self, terms: PipelineTerms, predict: Predictor) -> None:
        self.pipeline = Pipeline()
        self.batches: list[EndedBatch] = []
        self.steps: list[PipelineStep] = []
        self._terms = terms
        self._predict = predict
        self._writes: tuple[float, int] | None = None
        """Time at which the author finishes, and the number of its draft."""

    @property
    def is_written_at(self) -> float:
        """Time at which the author finishes; infinite while it does not write."""
        return self._writes[0] if self._writes else math.inf

    def is_written(self) -> None:
        """Take the finished draft of the author."""
        assert self._writes is not None
        (_, number), self._writes = self._writes, None
        if (step := written(self.pipeline, number, "a program")) is not None:
            self._take(step)

    def look(self, night: Batches) -> None:
        """Take all steps that are due."""
        while is_due(night.stand(self.pipeline), self._terms):
            facts = night.facts_of(self.pipeline)
            if (step := next_step(facts, self._terms)) is None:
                break
            if step.after.batch_id != step.before.batch_id:
                self._count(step, facts)
            self._take(step)
        if self._writes is None and wants_draft(night.stand(self.pipeline), self._terms):
            facts = night.facts_of(self.pipeline)
            left = left_of(facts.stand.results, self._terms)
            if (found := self._predict(night, left, present_decision(facts))) is not None:
                self._take(step := drafted(facts, found))
                assert step.after.draft is not None
                self._writes = (facts.stand.now + AUTHOR_S, step.after.draft.number)

    def _take(self, step: PipelineStep) -> None:
        self.pipeline = step.after
        self.steps.append(step)

    def _count(self, step: PipelineStep, facts: PipelineFacts) -> None:
        """Record an ended batch."""
        is_hit = step.kind == "confirmed"
        busy_s = max(0.0, self.is_written_at - facts.stand.now) if self._writes else 0.0
        self.batches.append(
            EndedBatch(
                facts.stand.results,
                is_hit,
                has_changed=step.after.decided != step.before.decided,
                lag_s=0.0 if is_hit else busy_s + AUTHOR_S,
                bank=step.after.bank,
                deploys=may_deploy(step.after, self._terms),
            )
        )


class Batches(Night):
    """A swarm with its pipeline, and a second pipeline that always predicts no change."""

    def __init__(
        self,
        seed: int,
        *,
        workers: int,
        terms: PipelineTerms,
        has_rivals: bool = False,
        resamples: int = RESAMPLES,
    ) -> None:
        self._resamples = resamples
        self._has_rivals = has_rivals
        self._guess = Random(f"guesses {seed}")
        self.pipe = SimulatedPipeline(terms, Batches.foretold)
        self.unchanging = SimulatedPipeline(terms, Batches.unchanged)
        self._path = Random(f"ticks {seed}")
        self._values: dict[str, float] = {}
        self._ticks: list[tuple[float, str, float]] = []
        self._pools: dict[float, list[float]] = {bucket: [] for bucket in BUCKETS}
        self._ticked = 0
        self._newest: list[Experiment] = []
        self._looked_at: list[OutlierRun] = []
        super().__init__(seed, believes=True, policy=POLICY.changed({"sampler": "thompson"}), workers=workers)

    @property
    def running(self) -> list[Experiment]:
        """The runs under way, those that began first at the front."""
        return [*self._running.values()]

    @property
    def newest(self) -> list[Experiment]:
        """The newest runs that ended, newest first."""
        return self._newest

    def flip(self) -> None:
        """Mirror the best value of each range at its middle."""
        self.truth = Truth({name: 1 - place for name, place in self.truth.best_places.items()})

    def _begin(self) -> None:
        self.beliefs.begin(rivals() if self._has_rivals else None)

    def go_on(self, results: int) -> None:
        """Simulate until `results` runs have ended in all."""
        while self.results < results:
            self._next()
            for pipe in (self.pipe, self.unchanging):
                pipe.look(self)

    def foretold(self, left: int, now: BatchDecision | None) -> Prediction | None:
        """The server's prediction."""
        early = self.beliefs.early(
            self.running, self.newest, self._spread(), self.best_config, len(self._workers), self._now
        )
        return predicted(early, left, now, self._guess, self._resamples)

    def unchanged(self, left: int, now: BatchDecision | None) -> Prediction | None:
        return None if now is None else Prediction(now, 1.0)

    def stand(self, pipeline: Pipeline) -> PipelineState:
        results = self.beliefs.results
        return PipelineState(self._now, pipeline, results, self._ticked, results >= FIRST_PROGRAM)

    def facts_of(self, pipeline: Pipeline) -> PipelineFacts:
        beliefs = self.beliefs.facts(len(self._workers), self._now)
        return PipelineFacts(self.stand(pipeline), beliefs, self._looked_at)

    def _next(self) -> None:
        """Simulate the next event: an author's text, a tick, or the end of a run."""
        ends_at = self._ends[0][0]
        ticks_at = self._ticks[0][0] if self._ticks else math.inf
        pipe = min((self.pipe, self.unchanging), key=lambda each: each.is_written_at)
        if pipe.is_written_at <= min(ends_at, ticks_at):
            self._now = pipe.is_written_at
            pipe.is_written()
        elif ticks_at <= ends_at:
            self._now, name, bucket = heapq.heappop(self._ticks)
            self._tick(name, bucket)
        else:
            super().go_on(self.results + 1)

    def _start(self, e: Experiment, worker: SwarmWorker) -> None:
        super()._start(e, worker)
        name = e.experiment_id
        self._values[name] = self.measured(e.config_delta or {})
        lasts_s = next(at for at, ending in self._ends if ending == name) - self._now
        for bucket in BUCKETS if e.retest_of is None else ():
            heapq.heappush(self._ticks, (self._now + bucket * lasts_s, name, bucket))

    def _ended_with(self, e: Experiment) -> float:
        return self._values[e.experiment_id]

    def _end(self, e: Experiment) -> None:
        super()._end(e)
        assert e.baseline_bpb is not None
        delta = self._values.pop(e.experiment_id) - e.baseline_bpb
        told = {"status": "discard", "delta_bpb": delta, "finished_at": self._now}
        self._newest = [e.model_copy(update=told), *self._newest][:NEWEST]
        newest = OutlierRun(**self._newest[0].model_dump(include=set(OutlierRun.model_fields)))
        self._looked_at = [newest, *self._looked_at][:LOOKED_AT]

    def _tick(self, name: str, bucket: float) -> None:
        """Rank the run among those that reached this bucket before."""
        if (e := self._running.get(name)) is None:
            return
        left = math.exp(-5 * bucket) - math.exp(-5)
        off = self._path.gauss(0.0, TRENDS * FALLS) * left
        off += self._path.gauss(0.0, BLURRED * SIGMA) * (1 - bucket)
        value, pool = self._values[name] + FALLS * left + off, self._pools[bucket]
        lower = bisect_left(pool, value)
        equal = bisect_right(pool, value) - lower
        rank = standing("minimize", lower=lower, equal=equal, peers=len(pool)).rank
        insort(pool, value)
        ranked = {**(e.ranked or {}), repr(bucket): (rank, 0.0)}
        self._running[name] = e.model_copy(update={"ranked": ranked, "last_progress": bucket})
        self._ticked += 1


Predictor = Callable[[Batches, int, BatchDecision | None], Prediction | None]
