"""pipeline::flush_token names the last dropped draft."""

from __future__ import annotations

from functions.contract import Http, Response, function
from functions.of_swarm import OfSwarm
from state.pipelines import Pipelines
from state.settings import Settings


class ReadFlushToken(OfSwarm):
    """No field but the tag."""


class FlushToken(Response):
    flush_token: str | None
    """Id of the last dropped draft, which workers discard if they have preloaded it; null: none was dropped."""


@function("pipeline::flush_token", Http("GET", "/pipeline/flush_token"), role="viewer", is_public=True)
async def flush_token(request: ReadFlushToken, pipelines: Pipelines, settings: Settings) -> FlushToken:
    """The last dropped draft."""
    stand = await pipelines.stand(request.tag_in(settings))
    return FlushToken(flush_token=stand.pipeline.last_flush_token)
