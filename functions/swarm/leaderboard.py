"""swarm::leaderboard lists the workers of a swarm by their best run."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, RootModel

from functions.contract import Http, Request, function
from functions.swarm._stores import Stores
from state.ids import Tag as TagName
from state.settings import Settings

MOST = 50


class ReadLeaderboard(Request):
    tag: TagName | None = Field(None, description="the tag; default: NIGHTJAR_SWARM_TAG", examples=["swarm"])


class Leading(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=False, defer_build=True)

    rank: int
    worker_id: str
    gpu_type: str
    best_delta_bpb: float
    """Its best value less its baseline: below 0 is better."""
    best_config_delta: dict[str, object]
    experiment_count: int
    """Its runs that ended with a value, or were stopped."""


class Leaderboard(RootModel[list[Leading]]):
    """The best worker first; 50 at most."""


@function("swarm::leaderboard", Http("GET", "/leaderboard"), role="viewer", is_public=True)
async def leaderboard(request: ReadLeaderboard, stores: Stores, settings: Settings) -> Leaderboard:
    """The workers of a swarm by their best run, best first."""
    leaders = await stores.swarms.leaders(request.tag or settings.swarm_tag, MOST)
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
