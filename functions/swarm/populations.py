"""swarm::populations shows how a swarm's workers are divided among its hypotheses."""

from __future__ import annotations

import asyncio
import builtins

from pydantic import BaseModel, ConfigDict

from functions.contract import Http, Response, function
from functions.of_swarm import OfSwarm
from functions.rules.beliefs.allocation import information_value
from functions.rules.beliefs.posterior import posterior
from functions.rules.swarm.populations import Population, populations_of
from functions.swarm._stores import Stores
from state.hypotheses import Hypotheses
from state.records import Hypothesis
from state.settings import Settings
from state.swarm_facts import SwarmFacts


class ReadPopulations(OfSwarm):
    """No field but the tag."""


class PopulationView(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=False, defer_build=True)

    population_id: str
    hypothesis_id: str | None
    hypothesis_statement: str
    strategy: str
    status: str
    """Its hypothesis' status; active while it has none."""
    posterior: float | None
    """P of its hypothesis, 0 to 1; null without one, as the two below."""
    information_value: float | None
    """Worth of its hypothesis' next result, 0 to 1. More workers go where it is higher."""
    n_experiments: int | None
    target_workers: int
    assigned_workers: int
    """Number of its workers that were heard of in the last ten minutes."""


class Populations(Response):
    count: int
    populations: builtins.list[PopulationView]


@function("swarm::populations", Http("GET", "/populations"), role="viewer", is_public=True)
async def populations(
    request: ReadPopulations, stores: Stores, hypotheses: Hypotheses, settings: Settings
) -> Populations:
    """The populations of a swarm; one while it has no hypotheses."""
    tag = request.tag_in(settings)
    facts, believed = await asyncio.gather(stores.swarms.find(tag), hypotheses.find(tag))
    if facts is None:
        return Populations(count=0, populations=[])
    known = {h.hypothesis_id: h for h in believed.open} if believed else {}
    shown = [_view(p, known.get(p.hypothesis_id or ""), facts) for p in populations_of(facts)]
    return Populations(count=len(shown), populations=shown)


def _view(p: Population, tested: Hypothesis | None, facts: SwarmFacts) -> PopulationView:
    return PopulationView(
        population_id=p.population_id,
        hypothesis_id=p.hypothesis_id,
        hypothesis_statement=p.statement,
        strategy=p.strategy,
        status=tested.status if tested else "active",
        posterior=round(posterior(tested).posterior_mean, 4) if tested else None,
        information_value=round(information_value(tested), 4) if tested else None,
        n_experiments=tested.n_experiments if tested else None,
        target_workers=p.target if facts.populations else facts.active_workers,
        assigned_workers=facts.in_flight.get(p.population_id, 0),
    )
