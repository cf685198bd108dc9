"""swarm::health says that the swarm's server answers, and how much goes on."""

from __future__ import annotations

from functions.contract import Call, Http, Response, function
from functions.of_swarm import OfSwarm
from functions.rules.access import STRANGER
from functions.rules.opening import first_policy, swarm_policy
from functions.rules.swarm.handing_out import run_time
from functions.rules.swarm.populations import populations_of
from functions.swarm._stores import Stores
from state.errors import Unauthenticated
from state.settings import Settings


class ReadSwarmHealth(OfSwarm):
    """No field but the tag."""


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
async def health(request: ReadSwarmHealth, call: Call, stores: Stores, settings: Settings) -> SwarmHealth:
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
        return SwarmHealth(budget_seconds=run_time(policy).budget_s, ts=await stores.swarms.now())
    depth = await stores.swarms.waiting_count(tag, [p.population_id for p in populations_of(facts)])
    return SwarmHealth(
        experiments=facts.tag.results,
        queue_depth=depth,
        active_workers=facts.active_workers,
        frozen_dims=sum(d.frozen for d in facts.dimensions),
        budget_seconds=run_time(facts.policy).budget_s,
        ts=facts.now,
    )
