"""run::stats counts the runs of a swarm, and shows the percentiles of their values at each fifth of the budget."""

from __future__ import annotations

import asyncio

from pydantic import BaseModel, ConfigDict

from functions.contract import Http, Response, function
from functions.of_swarm import OfSwarm
from functions.rules.swarm.handing_out import run_time
from functions.run._stores import Stores
from state.settings import Settings


class ReadStats(OfSwarm):
    """No field but the tag."""


class BucketView(BaseModel):
    """Values of all runs at one bucket, as they are ranked; null while there are none."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False, defer_build=True)

    p25: float | None = None
    p50: float | None = None
    p75: float | None = None
    p90: float | None = None
    n: int


class RunStats(Response):
    active: int
    completed: int
    """Runs that ended with a value."""
    killed: int
    """Runs that were stopped."""
    extended: int
    """Runs that were given more time, and have reported beyond their budget."""
    kill_rate: float
    """Percent of the ended runs that were stopped, 0 to 100."""
    saved_gpu_seconds: float
    """What stopped runs had left of the budget when they were stopped."""
    best_delta: float | None
    """The best run's value less its worker's baseline."""
    bucket_pools: dict[str, BucketView]
    """By progress: "0.2", "0.4", "0.6", "0.8" and "1.0"."""


@function("run::stats", Http("GET", "/runs/stats"), role=("viewer", "worker"))
async def stats(request: ReadStats, stores: Stores, settings: Settings) -> RunStats:
    """Numbers of runs of a swarm: active, ended, stopped and extended."""
    tag = request.tag_in(settings)
    swarms = stores.swarms
    (_, runs), facts, leaders, pools, stopped_at = await asyncio.gather(
        swarms.active_runs(tag),
        swarms.find(tag),
        swarms.leaders(tag, 1),
        swarms.pools(tag),
        swarms.stopped_at(tag),
    )
    left = sum((1 - bucket) * runs for bucket, runs in stopped_at.items())
    killed, ended = (facts.tag.stopped, facts.tag.results) if facts else (0, 0)
    return RunStats(
        active=len(runs),
        completed=ended - killed,
        killed=killed,
        extended=facts.tag.extended if facts else 0,
        kill_rate=round(100 * killed / max(ended, 1), 1),
        saved_gpu_seconds=round(left * run_time(facts.policy).budget_s, 1) if facts else 0.0,
        best_delta=leaders[0].best_delta_bpb if leaders else None,
        bucket_pools={
            f"{bucket:.1f}": BucketView(
                **{f"p{percent}": value for percent, value in pool.percentiles.items()}, n=pool.runs
            )
            for bucket, pool in pools.items()
        },
    )
