"""swarm::leaderboard lists the workers of a swarm by their best run."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, RootModel

from functions.contract import Http, function
from functions.of_swarm import OfSwarm
from functions.swarm._stores import Stores
from state.settings import Settings

MOST = 50


class ReadLeaderboard(OfSwarm):
    """No field but the tag."""


class Leading(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=False, defer_build=True)

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
async def leaderboard(request: ReadLeaderboard, stores: Stores, settings: Settings) -> Leaderboard:
    """The workers of a swarm by their best run, best first."""
    leaders = await stores.swarms.leaders(request.tag_in(settings), MOST)
    return Leaderboard(
        [
            Leading(
                rank=rank,
                worker_id=leader.worker_id,
                gpu_type=leader.gpu_type,
                best_delta_bpb=leader.best_delta_bpb,
                best_config_delta=leader.best_config_delta,
                experiment_count=leader.runs,
            )
            for rank, leader in enumerate(leaders, 1)
        ]
    )
