"""Which population a swarm's worker is in, and whether its next run is one of the reference config."""

from __future__ import annotations

from collections.abc import Mapping

from functions.rules.beliefs.rebalancing import population_for
from functions.rules.beliefs.strategies import COMPARED
from functions.rules.swarm.populations import Population, everyone
from functions.rules.swarm.shapes import freedoms_of
from state.errors import Invalid
from state.records import SwarmWorker, Value
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


def is_reference(config: Mapping[str, Value], population: Population) -> bool:
    """Whether a config is what the population's runs are compared with."""
    return population.strategy in COMPARED and dict(population.shape.center) == dict(config)


def reference_config(
    worker: SwarmWorker, population: Population, facts: SwarmFacts
) -> dict[str, Value] | None:
    """The reference config where the worker's next run has to be one of it; else None.

    So many of its compared runs are as `belief.reference_share` says; a frozen dimension stands where it is frozen.
    """
    if population.strategy not in COMPARED or not population.shape.center:
        return None
    if (worker.compared + 1) * facts.policy.belief.reference_share < 1:
        return None
    return {f.dimension.name: f.standing for f in freedoms_of(facts.dimensions, population.shape)}


def compared_after(worker: SwarmWorker, config: Mapping[str, Value], population: Population) -> int:
    """The worker's runs since its last one of a reference config, after one with this config."""
    if population.strategy not in COMPARED:
        return worker.compared
    return 0 if is_reference(config, population) else worker.compared + 1
