"""pipeline::spec_payload is the drafted programme with how far it can be relied on."""

from __future__ import annotations

from pydantic import Field

from functions.contract import Http, Request, Response, function
from state.ids import Tag as TagName


class ReadDraftPayload(Request):
    tag: TagName | None = Field(None, description="the tag; default: NIGHTJAR_SWARM_TAG", examples=["swarm"])


class DraftPayload(Response):
    spec_id: str
    program_md: str
    confidence: float
    deployment_confidence: float


@function("pipeline::spec_payload", Http("GET", "/pipeline/spec_payload"), role="viewer", is_public=True)
async def spec_payload(request: ReadDraftPayload) -> DraftPayload | None:
    """The draft as workers preload it; 204 while there is none."""
    return None
