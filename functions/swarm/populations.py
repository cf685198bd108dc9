"""swarm::populations shows how a swarm's workers are divided among its hypotheses."""

from __future__ import annotations

import builtins

from pydantic import BaseModel, ConfigDict

from functions.contract import Http, Response, function
from functions.of_swarm import OfSwarm
from functions.rules.swarm.belonging import populations_of
from functions.swarm._stores import Stores
from state.settings import Settings


class ReadPopulations(OfSwarm):
    """No field but the tag."""


class PopulationView(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=False, defer_build=True)

    population_id: str
    hypothesis_id: str | None
    hypothesis_statement: str
    strategy: str
    target_workers: int
    assigned: int
    """Workers that were heard of in the last ten minutes."""


class Populations(Response):
    count: int
    populations: builtins.list[PopulationView]


@function("swarm::populations", Http("GET", "/populations"), role="viewer", is_public=True)
async def populations(request: ReadPopulations, stores: Stores, settings: Settings) -> Populations:
    """The populations of a swarm; one while it has no hypotheses."""
    tag = request.tag_in(settings)
    facts = await stores.swarms.find(tag)
    if facts is None:
        return Populations(count=0, populations=[])
    shown = [
        PopulationView(
            population_id=p.population_id,
            hypothesis_id=p.hypothesis_id,
            hypothesis_statement=p.statement,
            strategy=p.strategy,
            target_workers=p.target if facts.populations else facts.active_workers,
            assigned=facts.assigned.get(p.population_id, 0),
        )
        for p in populations_of(facts)
    ]
    return Populations(count=len(shown), populations=shown)
