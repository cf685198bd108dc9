"""A night of a swarm in memory: simulated workers, and the rules of the server for what they run and what it says."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from bench._beliefs import BeliefsInMemory
from bench._planted import DIMENSIONS, SIGMA, Truth
from bench._tag import KeepingTag, SimulatedRetest
from functions.beliefs.rules.protocols import CellRun, RunningTest, missing_cells
from functions.beliefs.rules.sharing import reference_config
from functions.beliefs.rules.specs import cells_of
from functions.experiments.rules.opening import swarm_policy, swarm_tag
from functions.runs.rules.stopping import REASON
from functions.swarm.rules.dimensions import same
from functions.swarm.rules.handing_out import (
    CATEGORY,
    REFERENCE_PRIORITY,
    QueuedConfig,
    handed_out,
    lost,
    retest_for,
)
from functions.swarm.rules.populations import Population, everyone, population_of, populations_of
from functions.swarm.rules.proposals import fingerprint
from functions.swarm.rules.refilling import observations_of, presumed_best, replenished
from functions.trust.rules.retests import Effort
from state.decisions import HandOut
from state.facts import Spread
from state.policy import Policy
from state.records import Dimension, Experiment, SwarmWorker, Tag, Value
from state.swarm_facts import NextFacts, Observed, RefillFacts, SwarmFacts
from state.swarms import LOOKED_AT

TAG = "night"
WORKERS = 60
RUN_S = 300.0
VARIES = 0.1
"""By which share a run lasts longer or shorter, at most."""
BASELINES = 3
"""Runs of a worker's unchanged train.py whose mean is its baseline."""
POLICY = swarm_policy(Policy()).changed({"stopping.rule": "none"})


@dataclass(frozen=True)
class Ran:
    strategy: str
    is_reference: bool
    varied: int
    """Dimensions in which it differs from the unchanged config, the tag's best, or the config that it was proposed
    around, whichever it is nearest to."""
    is_again: bool
    """Another worker had lost it, so what it was proposed around is not known any more."""


@dataclass(frozen=True)
class Said:
    """What was said of a hypothesis, and after how many results."""

    hypothesis_id: str
    what: str
    results: int


@dataclass(frozen=True)
class Conditions:
    """What goes wrong in a night."""

    baseline_error: float | None = None
    """Standard deviation of a worker's baseline, in sigmas; None: it measures its own, by BASELINES runs."""
    lost: float = 0.0
    """Share of the runs whose result never comes."""
    dimensions: Sequence[Dimension] = DIMENSIONS


@dataclass
class Change:
    """The workers were shared out anew."""

    targets: Mapping[str, int]
    waits_for: set[str] = field(default_factory=set)
    """Workers that were handed out no config since."""

    def off(self, in_flight: Mapping[str, int]) -> int:
        """Runs of populations beyond their targets."""
        return sum(max(0, runs - self.targets.get(name, 0)) for name, runs in in_flight.items())


class Night:
    """A swarm's tag with its workers, whose runs end one after the other; `believes`: with hypotheses."""

    refilled_every = 10
    """Results after which the queues are filled; the server does it once half of a queue was handed out."""

    def __init__(
        self,
        seed: int,
        *,
        believes: bool,
        policy: Policy = POLICY,
        workers: int = WORKERS,
        conditions: Conditions | None = None,
    ) -> None:
        self.conditions = conditions or Conditions()
        self.truth = Truth.drawn(Random(f"truth {seed}"), self.conditions.dimensions)
        self._unchanged = reference_config(self.conditions.dimensions, {})
        """The constants of the workers' own train.py: the middle of each range, and the first category."""
        self.beliefs = BeliefsInMemory(swarm_tag(TAG), policy, self.conditions.dimensions)
        self.policy = policy
        self.results = self.stopped = 0
        self.ran: list[Ran] = []
        self.said: list[Said] = []
        self.off_after_a_round: list[int] = []
        """Workers in populations that had too many, once each worker was handed out a config of one after a change.
        Who repeats another's run, or runs a cell of the test, is in none meanwhile."""
        self.off_when_overtaken: list[int] = []
        """The same at the next change, where that came before."""
        self.test: RunningTest | None = None
        self.cells: dict[str, CellRun] = {}
        """Runs of the test, by id."""
        self._rng = Random(f"night {seed}")
        self._now = 0.0
        self._keeps = KeepingTag(policy.keep_rule, Effort(0, policy.max_retests))
        self._experiments: dict[str, Experiment] = {}
        self._running: dict[str, Experiment] = {}
        self._ends: list[tuple[float, str]] = []
        self._retests: dict[str, SimulatedRetest] = {}
        self._trials, self._in_flight = Counter[str](), Counter[str]()
        self._ended: list[Observed] = []
        self._waiting: dict[str, dict[str, float]] = {}
        self._change: Change | None = None
        if believes:
            self._begin()
        names = [f"w{n}" for n in range(1, workers + 1)]
        self._workers = {name: self._joined(name, n) for n, name in enumerate(names, 1)}
        self._refill()
        for name in names:
            self._ask(name)

    def go_on(self, results: int) -> None:
        """Until so many runs have ended in all."""
        while self.results < results:
            self._now, name = heapq.heappop(self._ends)
            run = self._running.pop(name)
            if self._rng.random() < self.conditions.lost:
                self._lose(run)
            else:
                self._end(run)
            assert run.worker_id is not None
            self._ask(run.worker_id)

    @property
    def best_config(self) -> dict[str, Any]:
        """Of the tag's best; empty: it has none."""
        best = self._keeps.best
        return dict(self._experiments[best.experiment_id].config_delta or {}) if best else {}

    def regret(self, config: Mapping[str, Value]) -> float:
        """How much worse than the best a config is, in sigmas."""
        return self.truth.regret(config)

    def measured(self, config: Mapping[str, Value]) -> float:
        return self.truth.value(config) + self._rng.gauss(0.0, SIGMA)

    def _begin(self) -> None:
        """Enter the first claims."""
        self.beliefs.begin()

    # -- a worker

    def _joined(self, name: str, number: int) -> SwarmWorker:
        error = self.conditions.baseline_error
        baseline = (
            sum(self.measured(self._unchanged) for _ in range(BASELINES)) / BASELINES
            if error is None
            else self.truth.value(self._unchanged) + self._rng.gauss(0.0, SIGMA * error)
        )
        return SwarmWorker(
            worker_id=name,
            number=number,
            tag=TAG,
            gpu_type="Simulated",
            baseline_bpb=baseline,
            token_id=name,
            joined_at=0.0,
        )

    def _ask(self, name: str) -> None:
        """What swarm::next_config does: a retest, a cell of the test, or a config of the worker's population."""
        worker = self._workers[name]
        facts = self._next_facts(worker)
        if (retest := retest_for(facts)) is not None:
            self._start(retest, worker)
        elif (cell := self._cell()) is not None:
            e = self._experiment(cell, strategy="validate")
            self.cells[e.experiment_id] = CellRun(cell, None, pending=True)
            self._start(e, worker)
        else:
            self._hand_out(worker, facts)
            self._asked(name)

    def _cell(self) -> Mapping[str, Value] | None:
        if self.test is None or len(self.cells) >= self.test.spec.min_runs_per_cell * len(
            cells_of(self.test.spec)
        ):
            return None
        return next((p.config for p in missing_cells(self.test, [*self.cells.values()])), None)

    def _hand_out(self, worker: SwarmWorker, facts: NextFacts) -> None:
        population = population_of(worker, facts)
        out, nth = handed_out(facts, population, worker.worker_id, 0, self._rng), 0
        while self._is_taken(out):
            nth += 1
            out = handed_out(facts, population, worker.worker_id, nth, self._rng)
        if out.proposal is not None:
            del self._waiting[facts.waiting_for][out.proposal]
        compared = 0 if out.is_reference else worker.compared + out.is_compared
        joined = {"population_id": out.population_id, "compared": compared}
        self._workers[worker.worker_id] = worker.model_copy(update=joined)
        config = out.idea.config_delta or {}
        is_asked = out.is_reference and out.priority == REFERENCE_PRIORITY
        queued = None if out.proposal is None else QueuedConfig.read(out.proposal)
        around, is_again = (queued.around, queued.results is None) if queued else (None, False)
        shapes = (population.shape, population.tested, population.searched)
        near = [self._unchanged, self.best_config, around, *(shape.center for shape in shapes if shape)]
        self.ran.append(Ran(out.strategy, is_asked, self._varied(config, near), is_again))
        fields = {
            "hypothesis_id": out.idea.hypothesis_id,
            "population_id": out.population_id,
            "is_compared": out.is_compared,
            "is_reference": out.is_reference,
        }
        self._start(self._experiment(config, out.strategy, **fields), worker)

    def _is_taken(self, out: HandOut) -> bool:
        trials, flying = self._trials[out.fingerprint], self._in_flight[out.fingerprint]
        return (out.most_trials is not None and trials + flying >= out.most_trials) or (
            out.most_in_flight is not None and flying >= out.most_in_flight
        )

    def _varied(self, config: Mapping[str, Value], near: Sequence[Mapping[str, Value] | None]) -> int:
        """How many dimensions differ from the closest of these configs; frozen ones do not count."""
        may_vary = [d.name for d in self.beliefs.dimensions if not d.frozen]
        return min(sum(not same(config[name], one[name]) for name in may_vary) for one in near if one)

    def _experiment(self, config: Mapping[str, Value], strategy: str, **fields: Any) -> Experiment:
        number = len(self._experiments) + 1
        e = Experiment(
            experiment_id=f"{TAG}-{number}",
            tag=TAG,
            number=number,
            status="registered",
            hypothesis="",
            description="",
            category=CATEGORY,
            commit_sha="",
            diff_summary="",
            registered_at=self._now,
            config_delta=dict(config),
            fingerprint=fingerprint(config, self.conditions.dimensions),
            population_strategy=strategy,
            **fields,
        )
        self._experiments[e.experiment_id] = e
        return e

    def _start(self, e: Experiment, worker: SwarmWorker) -> None:
        given = {
            "status": "running",
            "worker_id": worker.worker_id,
            "agent": e.agent or worker.worker_id,
            "baseline_bpb": worker.baseline_bpb,
            "started_at": self._now,
        }
        begun = e.model_copy(update=given)
        assert e.fingerprint is not None
        self._in_flight[e.fingerprint] += 1
        self._experiments[e.experiment_id] = self._running[e.experiment_id] = begun
        lasts = RUN_S * self._rng.uniform(1 - VARIES, 1 + VARIES)
        heapq.heappush(self._ends, (self._now + lasts, e.experiment_id))

    def _ended_with(self, e: Experiment) -> float:
        """The metric of a run that ends now."""
        return self.measured(e.config_delta or {})

    # -- a result

    def _lose(self, e: Experiment) -> None:
        """What swarm::sweep does: its config waits for another worker, and a retest is begun anew."""
        assert e.fingerprint is not None
        self._in_flight[e.fingerprint] -= 1
        if (retest := self._retests.get(e.experiment_id)) is not None:
            self._keeps.end(retest, "lost")
            self._judge_retests()
        elif e.experiment_id in self.cells:
            del self.cells[e.experiment_id]
        elif (text := lost(e, "").returned) is not None and e.population_id in self._waiting:
            self._waiting[e.population_id][text] = QueuedConfig.read(text).priority

    def _end(self, e: Experiment) -> None:
        """As swarm::result, with everything that its event begins."""
        assert e.fingerprint is not None
        assert e.baseline_bpb is not None
        config = e.config_delta or {}
        delta = self._ended_with(e) - e.baseline_bpb
        self.results += 1
        self._in_flight[e.fingerprint] -= 1
        self._trials[e.fingerprint] += 1
        retest = self._retests.get(e.experiment_id)
        if retest is None:
            self._keeps.complete(e.experiment_id, delta, code=e.fingerprint, worker=e.worker_id)
        else:
            self._keeps.end(retest, delta, e.worker_id)
        self._judge_retests()
        ended = e.model_copy(update={"status": "measured" if retest else "discard", "delta_bpb": delta})
        if retest is None:
            self._ended.append(Observed(**ended.model_dump(include=set(Observed.model_fields))))
        if e.experiment_id in self.cells:
            self.cells[e.experiment_id] = CellRun(config, delta)
        self._learn(ended)

    def _learn(self, ended: Experiment) -> None:
        """What the event of a run's end begins."""
        before = self.beliefs.populations
        learning = self.beliefs.learn(ended, self._spread(), self.best_config, len(self._workers), self._now)
        for said, word in ((learning.believed, "status"), (learning.settled, "settled")):
            for name, news in said.items():
                self.said.append(Said(name, f"{word} {news[word]}", self.results))
        if learning.populations is not None:
            self._shared_out(before)
        if self.results % self.refilled_every == 0:
            self._refill()

    def _stop(self, e: Experiment) -> None:
        """Stop a run early, as run::tick does, and learn from its end."""
        assert e.fingerprint is not None
        name = e.experiment_id
        del self._running[name]
        self._ends = [(at, ending) for at, ending in self._ends if ending != name]
        heapq.heapify(self._ends)
        self.results += 1
        self.stopped += 1
        self._in_flight[e.fingerprint] -= 1
        self._trials[e.fingerprint] += 1
        ended = e.model_copy(update={"status": "stopped", "stop_reason": REASON})
        self._ended.append(Observed(**ended.model_dump(include=set(Observed.model_fields))))
        self._learn(ended)
        assert e.worker_id is not None
        self._ask(e.worker_id)

    def _spread(self) -> Spread:
        return self._keeps.sums

    def _judge_retests(self) -> None:
        self._keeps.judge_retests()
        while self._keeps.waiting:
            retest = self._keeps.waiting.popleft()
            first = self._experiments[retest.of]
            number = len(self._experiments) + 1
            name = f"{TAG}-{number}"
            again = {"experiment_id": name, "number": number, "status": "registered", "retest_of": retest.of}
            self._experiments[name] = first.model_copy(update={**again, "registered_at": self._now})
            self._retests[name] = retest

    # -- populations

    def _in_populations(self) -> dict[str, int]:
        """Runs in flight by population."""
        running = self._running.values()
        return dict(Counter(e.population_id for e in running if e.population_id and not e.retest_of))

    def _shared_out(self, before: Mapping[str, str]) -> None:
        after = self._targets(self.beliefs.populations)
        if after == self._targets(before):
            return
        if self._change is not None:
            self.off_when_overtaken.append(self._change.off(self._in_populations()))
        self._change = Change(after, {*self._workers})

    def _asked(self, name: str) -> None:
        if self._change is None:
            return
        self._change.waits_for.discard(name)
        if not self._change.waits_for:
            self.off_after_a_round.append(self._change.off(self._in_populations()))
            self._change = None

    @staticmethod
    def _targets(populations: Mapping[str, str]) -> dict[str, int]:
        return {name: Population.read(text).target for name, text in populations.items()}

    # -- facts, as the stores read them

    def _facts(self) -> dict[str, Any]:
        """The fields of `SwarmFacts`."""
        return {
            "now": self._now,
            "tag": self._tag(),
            "policy": self.policy,
            "policy_version": 1,
            "dimensions": self.beliefs.dimensions,
            "dimensions_version": self.beliefs.dimensions_version,
            "active_workers": len(self._workers),
            "best": self._keeps.best,
            "populations": [*self.beliefs.populations.values()],
            "in_flight": self._in_populations(),
            "newest_at": self._now,
        }

    def _tag(self) -> Tag:
        return swarm_tag(TAG).model_copy(update={"discarded": self.results, "total": self.results})

    def _next_facts(self, worker: SwarmWorker) -> NextFacts:
        told = self._facts()
        population_id = population_of(worker, SwarmFacts(**told)).population_id
        waiting = self._waiting.get(population_id, {})
        retests = (self._experiments[name] for name in self._retests)
        return NextFacts(
            **told,
            worker=worker,
            run=None,
            waiting_for=population_id,
            waiting=sorted(waiting, key=lambda text: (-waiting[text], text))[:LOOKED_AT],
            retests=[e for e in retests if e.status == "registered"],
        )

    @property
    def taken_for_best(self) -> Mapping[str, Value]:
        """The config that a search near the best is around; at least one run has ended."""
        facts = self._refill_facts()
        found = presumed_best(facts, observations_of(facts))
        assert found is not None
        return found

    def _refill(self) -> None:
        """What swarm::refill does."""
        facts = self._refill_facts()
        for population in populations_of(facts):
            change = replenished(facts, population, self._rng)
            queue = self._waiting[population.population_id]
            for text in change.dropped:
                del queue[text]
            queue |= dict(change.added)

    def _refill_facts(self) -> RefillFacts:
        running = [
            Observed(**e.model_dump(include=set(Observed.model_fields))) for e in self._running.values()
        ]
        ids = {*self.beliefs.populations, everyone(TAG).population_id}
        self._waiting = {name: self._waiting.get(name, {}) for name in ids}
        return RefillFacts(
            **self._facts(),
            observed=[*self._ended, *running],
            waiting={name: [*texts] for name, texts in self._waiting.items()},
            best_config=self.best_config,
        )
