"""swarm::health says that the swarm's server answers, and how much goes on."""

from __future__ import annotations

from functions.contract import Call, Http, Response, function
from functions.of_swarm import OfSwarm
from functions.rules.access import STRANGER
from functions.rules.swarm.belonging import populations_of
from functions.swarm._stores import Stores
from state.errors import Unauthenticated
from state.settings import Settings


class ReadSwarmHealth(OfSwarm):
    """No field but the tag."""


class SwarmHealth(Response):
    status: str
    experiments: int
    """Runs that ended with a value, or were stopped."""
    queue_depth: int
    """Configs that wait for a worker."""
    active_workers: int
    """Workers that were heard of in the last ten minutes."""
    frozen_dims: int
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
        now = await stores.swarms.now()
        return SwarmHealth(status="ok", experiments=0, queue_depth=0, active_workers=0, frozen_dims=0, ts=now)
    depth = await stores.swarms.waiting_count(tag, [p.population_id for p in populations_of(facts)])
    return SwarmHealth(
        status="ok",
        experiments=facts.tag.results,
        queue_depth=depth,
        active_workers=facts.active_workers,
        frozen_dims=sum(d.frozen for d in facts.dimensions),
        ts=facts.now,
    )
