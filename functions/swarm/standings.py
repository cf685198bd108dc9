"""A swarm at a glance: health, leaderboard, populations, workers."""

from __future__ import annotations

import asyncio

from pydantic import Field, RootModel

from functions.beliefs.rules.allocation import information_value
from functions.experiments.rules.opening import first_policy, swarm_policy
from functions.kernel.contract import Call, Http, OfSwarm, Response, function
from functions.kernel.rules.access import STRANGER
from functions.swarm.joining import JoiningStores
from functions.swarm.rules.handing_out import run_time_s
from functions.swarm.rules.populations import Population, populations_of
from state.errors import Unauthenticated
from state.hypotheses import Hypotheses
from state.records import Hypothesis, view_of
from state.settings import Settings
from state.swarm_facts import SwarmFacts


class SwarmHealth(Response):
    status: str = "ok"
    experiments: int = 0
    """Runs that ended with a value, or were stopped."""
    queue_depth: int = 0
    """Configs that wait for a worker."""
    active_workers: int = 0
    """Workers that were heard of in the last ten minutes."""
    frozen_dims: int = 0
    budget_seconds: int
    """Of a run that is not extended. A worker measures its baseline with it before it joins."""
    ts: float
    """Redis' clock, in seconds since 1970."""


@function("swarm::health", Http("GET", "/health"), role="anyone", knows_caller=True)
async def health(request: OfSwarm, call: Call, stores: JoiningStores, settings: Settings) -> SwarmHealth:
    """That the server answers, with the swarm's counts; all 0 before the first worker has joined."""
    tag = request.tag_in(settings)
    if tag != settings.swarm_tag and call.caller == STRANGER and not settings.swarm_public_reads:
        raise Unauthenticated(
            "another tag's counts are not public",
            hint="send a token (Authorization: Bearer); without one GET /health answers, without a tag",
        )
    facts = await stores.swarms.find(tag)
    if facts is None:
        policy = swarm_policy(first_policy(settings.near_miss_threshold, settings.max_consecutive_crashes))
        return SwarmHealth(budget_seconds=run_time_s(policy), ts=await stores.swarms.now())
    depth = await stores.swarms.waiting_count(tag, [p.population_id for p in populations_of(facts)])
    return SwarmHealth(
        experiments=facts.tag.results,
        queue_depth=depth,
        active_workers=facts.active_workers,
        frozen_dims=sum(d.frozen for d in facts.dimensions),
        budget_seconds=run_time_s(facts.policy),
        ts=facts.now,
    )


MOST = 50


class Leading(Response):
    rank: int
    worker_id: str
    gpu_type: str
    best_delta_bpb: float
    """Its best value less its baseline."""
    best_config_delta: dict[str, object]
    experiment_count: int
    """Its runs that ended with a value, or were stopped."""


class Leaderboard(RootModel[list[Leading]]):
    """The best worker first; 50 at most."""


@function("swarm::leaderboard", Http("GET", "/leaderboard"), role="viewer", is_public=True)
async def leaderboard(request: OfSwarm, stores: JoiningStores, settings: Settings) -> Leaderboard:
    """The workers of a swarm by their best run, best first."""
    leaders = await stores.swarms.leaders(request.tag_in(settings), MOST)
    return Leaderboard(
        [
            view_of(Leading, leader, rank=rank, experiment_count=leader.runs)
            for rank, leader in enumerate(leaders, 1)
        ]
    )


class PopulationView(Response):
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
    populations: list[PopulationView]


@function("swarm::populations", Http("GET", "/populations"), role="viewer", is_public=True)
async def populations(
    request: OfSwarm, stores: JoiningStores, hypotheses: Hypotheses, settings: Settings
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
    return view_of(
        PopulationView,
        p,
        hypothesis_statement=p.statement,
        status=tested.status if tested else "active",
        posterior=round(tested.probability, 4) if tested else None,
        information_value=round(information_value(tested), 4) if tested else None,
        n_experiments=tested.n_experiments if tested else None,
        target_workers=p.target if facts.populations else facts.active_workers,
        assigned_workers=facts.in_flight.get(p.population_id, 0),
    )


class ListWorkers(OfSwarm):
    limit: int = Field(100, ge=1, le=1000, description="most workers that are answered")
    offset: int = Field(0, ge=0, le=1_000_000_000, description="so many that joined earlier are left out")


class WorkerView(Response):
    number: int
    """In the order in which they joined, from 1."""
    worker_id: str
    gpu_type: str
    baseline_bpb: float
    """What its unchanged train.py measured."""
    contact: str | None
    """How to reach its owner, as that has said."""
    runs: int
    """Its runs that ended with a value, or were stopped, and were not retracted."""
    active: int
    """Its runs that go on."""
    run_id: str | None
    """The one that it was handed out last, while that goes on."""
    joined_at: float
    heard_at: float
    """When it last joined, got a run or reported, in seconds since 1970."""


class SwarmWorkers(Response):
    workers: list[WorkerView]
    total: int


@function("swarm::workers", Http("GET", "/api/swarm/workers"), role="operator")
async def workers(request: ListWorkers, stores: JoiningStores, settings: Settings) -> SwarmWorkers:
    """The workers of a swarm with how to reach their owners, in the order in which they joined."""
    tag = request.tag_in(settings)
    found, total = await stores.swarms.workers(tag, request.offset, request.limit)
    return SwarmWorkers(
        workers=[WorkerView.model_validate(worker, from_attributes=True) for worker in found], total=total
    )
