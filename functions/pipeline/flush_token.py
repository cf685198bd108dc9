"""pipeline::flush_token names the draft that was dropped last."""

from __future__ import annotations

from pydantic import Field

from functions.contract import Http, Request, Response, function
from state.ids import Tag as TagName


class ReadFlushToken(Request):
    tag: TagName | None = Field(None, description="the tag; default: NIGHTJAR_SWARM_TAG", examples=["swarm"])


class FlushToken(Response):
    flush_token: str | None
    """Of the draft that was dropped last: workers drop what they have preloaded of it. null: none was."""


@function("pipeline::flush_token", Http("GET", "/pipeline/flush_token"), role="viewer", is_public=True)
async def flush_token(request: ReadFlushToken) -> FlushToken:
    """Which draft was dropped last."""
    return FlushToken(flush_token=None)
