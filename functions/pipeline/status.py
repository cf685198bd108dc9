"""pipeline::status says whether programmes are drafted before their time."""

from __future__ import annotations

from functions.contract import Http, Response, function
from functions.of_swarm import OfSwarm


class ReadPipeline(OfSwarm):
    """No field but the tag."""


class PipelineStatus(Response):
    enabled: bool
    auto_deploy: bool
    deploy_allowed: bool
    spec_state: str | None
    spec_id: str | None
    last_flush_token: str | None
    flush_count: int
    confirmed_count: int
    hit_rate: float | None
    """Share of the drafts that were confirmed; null: none was confirmed or flushed."""


@function("pipeline::status", Http("GET", "/pipeline/status"), role="viewer", is_public=True)
async def status(request: ReadPipeline) -> PipelineStatus:
    """That nothing is drafted: programmes are not generated yet."""
    return PipelineStatus(
        enabled=False,
        auto_deploy=False,
        deploy_allowed=False,
        spec_state=None,
        spec_id=None,
        last_flush_token=None,
        flush_count=0,
        confirmed_count=0,
        hit_rate=None,
    )
