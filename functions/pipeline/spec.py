"""pipeline::spec is the programme that is drafted for the next batch of runs."""

from __future__ import annotations

from pydantic import Field

from functions.contract import Http, Request, Text, function
from state.ids import Tag as TagName


class ReadDraft(Request):
    tag: TagName | None = Field(None, description="the tag; default: NIGHTJAR_SWARM_TAG", examples=["swarm"])


@function("pipeline::spec", Http("GET", "/pipeline/spec"), role="viewer", is_public=True)
async def spec(request: ReadDraft) -> Text | None:
    """The draft's text; 204 while there is none."""
    return None
