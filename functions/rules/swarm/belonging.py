"""Which population a swarm's worker is in, and whether its next run is one of the reference config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from functions.rules.beliefs.rebalancing import population_for
from functions.rules.beliefs.strategies import COMPARED
from functions.rules.beliefs.terms import EvidencePolicy
from functions.rules.swarm.populations import Population, everyone
from functions.rules.swarm.shapes import Shape, SwarmStrategy, standing_config
from state.errors import Invalid
from state.policy import Policy
from state.records import Dimension, SwarmWorker, Value
from state.swarm_facts import SwarmFacts


def populations_of(facts: SwarmFacts) -> list[Population]:
    """The populations of a swarm: one for each hypothesis that is tested, or everyone in one."""
    return [Population.read(text) for text in facts.populations] or [everyone(facts.tag.name)]


def population_of(worker: SwarmWorker, facts: SwarmFacts) -> Population:
    """Where a worker is to run next: where it was, unless others lack workers."""
    known = {p.population_id: p for p in populations_of(facts)}
    targets = {name: p.target for name, p in known.items()}
    chosen = population_for(worker.population_id, targets, facts.assigned)
    assert chosen is not None
    return known[chosen]


def named_population(population_id: str | None, worker: SwarmWorker, facts: SwarmFacts) -> Population:
    """The population that a worker names for a run of its own choice; its own where it names none, or the one that it
    was in, which may have ended since.

    Raises:
        Invalid: there is none of this id.
    """
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
    """What one run of a population is for."""

    strategy: SwarmStrategy
    shape: Shape
    evidence: EvidencePolicy = "matched"

    @property
    def is_compared(self) -> bool:
        """Its value is compared with those of other runs for a claim, so it is run to its end."""
        return self.strategy == "validate" or self.has_references

    @property
    def has_references(self) -> bool:
        """It is compared with runs of the reference config, which is the shape's center.

        The cells of a test are compared with each other.
        """
        may_have = self.evidence == "matched" and self.strategy in COMPARED and self.strategy != "validate"
        return may_have and bool(self.shape.center)


def purpose_of(population: Population, policy: Policy, draw: float) -> Purpose:
    """What a worker's next run is for: its population's strategy, or now and then a run for the claim.

    Workers that look for the best config tell little of what is claimed: they win once the search works. A share of
    their runs, `belief.tested_share`, is compared with reference runs; `draw` is a number of [0, 1).
    """
    evidence = policy.belief.evidence
    if population.tested is not None and draw < policy.belief.tested_share:
        return Purpose("investigate", population.tested, evidence)
    return Purpose(population.strategy, population.shape, evidence)


def reference_config(
    worker: SwarmWorker, purpose: Purpose, dimensions: Sequence[Dimension], policy: Policy
) -> dict[str, Value] | None:
    """The reference config where the worker's next run has to be one of it; else None.

    So many of its compared runs are as `belief.reference_share` says, and so many workers begin with one: those that
    run once are compared with each other. A frozen dimension stands where it is frozen.
    """
    share = policy.belief.reference_share
    ahead = worker.number % round(1 / share) if worker.population_id is None else 0
    if not purpose.has_references or (worker.compared + 1 + ahead) * share < 1:
        return None
    # the claim's constraint is for the runs that are compared with it
    return standing_config(dimensions, replace(purpose.shape, constraint={}))


def is_reference(config: Mapping[str, Value], purpose: Purpose) -> bool:
    """Whether a config is what the purpose's runs are compared with."""
    return purpose.has_references and dict(purpose.shape.center) == dict(config)
