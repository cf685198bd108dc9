"""pipeline::flush_token names the draft that was dropped last."""

from __future__ import annotations

from functions.contract import Http, Response, function
from functions.of_swarm import OfSwarm
from state.pipelines import Pipelines
from state.settings import Settings


class ReadFlushToken(OfSwarm):
    """No field but the tag."""


class FlushToken(Response):
    flush_token: str | None
    """Of the draft that was dropped last: workers drop what they have preloaded of it. null: none was."""


@function("pipeline::flush_token", Http("GET", "/pipeline/flush_token"), role="viewer", is_public=True)
async def flush_token(request: ReadFlushToken, pipelines: Pipelines, settings: Settings) -> FlushToken:
    """Which draft was dropped last."""
    stand = await pipelines.stand(request.tag_in(settings))
    return FlushToken(flush_token=stand.pipeline.last_flush_token)
