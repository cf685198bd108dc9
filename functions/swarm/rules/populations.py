"""Populations: workers of a swarm that test one hypothesis with one strategy; which one a worker is in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from operator import mul
from typing import Any

from pydantic import TypeAdapter

from functions.beliefs.rules.allocation import population_for
from functions.beliefs.rules.terms import COMPARED, REFERENCED, EvidencePolicy
from functions.swarm.rules.shapes import Shape, SwarmStrategy, standing_config
from state.errors import Invalid
from state.policy import Policy
from state.records import Dimension, SwarmWorker, Value
from state.swarm_facts import SwarmFacts

TESTED_SHARE = 0.5
"""Share of the runs of workers that look for the best config which test their claim instead."""
LEAST_QUEUED, MOST_QUEUED = 8, 500
"""Configs in a queue while fewer or more workers are active.

Each refill reads the whole queue. 10,000 workers hand out 500 configs in 15 s.
"""


@dataclass(frozen=True)
class Population:
    """Workers that run configs for one hypothesis, with one strategy."""

    population_id: str
    strategy: SwarmStrategy
    hypothesis_id: str | None
    """None: they test no hypothesis."""
    statement: str
    target: int = 0
    """Number of workers that it should have."""
    shape: Shape = field(default_factory=lambda: Shape("investigate"))
    """What its configs vary. The default center is the best known config."""
    test_spec: Mapping[str, Any] | None = None
    """The test whose cells are its configs."""
    constraint: Mapping[str, Any] = field(default_factory=dict)
    tested: Shape | None = None
    """Shape of the runs that test its claim, if its strategy searches for the best config.

    None without a claim, or with a settled one."""
    searched: Shape | None = None
    """Shape of the runs that search for the best config, if its strategy tests its claim."""
    tests_for_reference: int = 1
    """Runs of its claim for each reference run."""

    @property
    def queued(self) -> Shape:
        return self.searched or self.shape

    def shape_around(self, best_config: Mapping[str, Value]) -> Shape:
        """Shape of the queued configs: near the best known config, unless they are compared with its center."""
        if self.queued.strategy in COMPARED and self.queued.center:
            return self.queued
        return replace(self.queued, center=best_config or self.queued.center)

    def text(self) -> str:
        return _POPULATION.dump_json(self).decode()

    @staticmethod
    def read(text: str) -> Population:
        return _POPULATION.validate_json(text)


_POPULATION = TypeAdapter(Population)


def everyone(tag: str) -> Population:
    """The one population of a tag without hypotheses: it searches in every dimension."""
    return Population(
        population_id(tag, "all"),
        "investigate",
        None,
        "some values of the dimensions are better than the baseline's",
    )


def population_id(tag: str, purpose: str) -> str:
    """The id of the population for a purpose: a hypothesis id, or a word."""
    return f"pop_{sha256(f'{tag} {purpose}'.encode()).hexdigest()[:6]}"


def populations_of(facts: SwarmFacts) -> list[Population]:
    """The populations of a swarm: one for each tested hypothesis, or one for all workers."""
    return [Population.read(text) for text in facts.populations] or [everyone(facts.tag.name)]


def population_of(worker: SwarmWorker, facts: SwarmFacts) -> Population:
    """The population of a worker's next run: its own, unless others lack workers."""
    known = {p.population_id: p for p in populations_of(facts)}
    targets = {name: p.target for name, p in known.items()}
    assigned, own = dict(facts.in_flight), worker.population_id
    if own is not None and worker.run_id is None:  # it is between two runs
        assigned[own] = assigned.get(own, 0) + 1
    chosen = population_for(own, targets, assigned)
    assert chosen is not None
    return known[chosen]


def named_population(population_id: str | None, worker: SwarmWorker, facts: SwarmFacts) -> Population:
    """The population that a worker names, else its current one. Raises Invalid: no population has this id."""
    if population_id in (None, worker.population_id):
        return population_of(worker, facts)
    found = next((p for p in populations_of(facts) if p.population_id == population_id), None)
    if found is None:
        raise Invalid(
            f"there is no population {population_id!r}", hint="GET /populations names them; or leave it out"
        )
    return found


@dataclass(frozen=True)
class Purpose:
    """Why a population runs one config."""

    strategy: SwarmStrategy
    shape: Shape
    evidence: EvidencePolicy = "matched"
    tests_for_reference: int = 1

    @property
    def is_compared(self) -> bool:
        """Its value is compared with other runs for a claim, so it must run to its end."""
        return self.strategy == "validate" or self.has_references

    @property
    def has_references(self) -> bool:
        """Whether runs are compared with the reference config; cells of a test are not."""
        may_have = self.evidence == "matched" and self.strategy in REFERENCED
        return may_have and bool(self.shape.center)


def purpose_of(
    population: Population, populations: Sequence[Population], policy: Policy, draw: float
) -> Purpose:
    """Purpose of a worker's next run: to test its population's claim, or to search for the best config.

    Runs of a search are weak evidence for the claim: they all win once the search works. `draw` in [0, 1) decides.
    """
    evidence, each = policy.belief.evidence, population.tests_for_reference
    is_test = draw < _tested_share(population, populations, policy)
    if population.tested is not None and is_test:
        return Purpose("investigate", population.tested, evidence, each)
    own = Purpose(population.strategy, population.shape, evidence, each)
    if population.searched is not None and own.has_references and not is_test:
        return Purpose(population.searched.strategy, population.searched, evidence)
    return own


def _tested_share(population: Population, populations: Sequence[Population], policy: Policy) -> float:
    """Share of a population's runs that test its claim, with the reference runs among them.

    All populations together spend at most `belief.reference_share` of the swarm's runs on references. If they would
    spend more, each share shrinks in proportion.
    """
    workers = [max(p.target, 1) for p in populations]
    wished = [_wished_share(p, policy) / (1 + p.tests_for_reference) for p in populations]
    references = sum(map(mul, workers, wished)) / sum(workers)
    return _wished_share(population, policy) * min(1.0, policy.belief.reference_share / (references or 1.0))


def _wished_share(population: Population, policy: Policy) -> float:
    if population.tested is not None:
        return TESTED_SHARE
    return 1.0 if population.strategy in REFERENCED else 0.0


def reference_config(
    worker: SwarmWorker, purpose: Purpose, dimensions: Sequence[Dimension]
) -> dict[str, Value] | None:
    """The reference config, if the worker's next run must be a reference run; else None.

    One follows each `tests_for_reference` runs of a worker. Half of the workers begin with one, because many workers
    run only once. Frozen dimensions keep their frozen values.
    """
    begins = worker.population_id is None and worker.number % 2 == 1
    is_due = begins or worker.compared >= purpose.tests_for_reference
    if not purpose.has_references or not is_due:
        return None
    # the claim's constraint holds for the runs that are compared with the reference
    return standing_config(dimensions, replace(purpose.shape, constraint={}))


def is_reference(config: Mapping[str, Value], purpose: Purpose) -> bool:
    return purpose.has_references and dict(purpose.shape.center) == dict(config)


def queue_target(policy: Policy, workers: int) -> int:
    """Length to which the queue of a population with so many workers is filled."""
    if policy.queue_target is not None:
        return policy.queue_target
    return min(max(LEAST_QUEUED, workers), MOST_QUEUED)
