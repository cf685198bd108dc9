"""pipeline::spec_payload is the drafted programme with how far it can be relied on."""

from __future__ import annotations

from functions.contract import Http, Response, function
from functions.of_swarm import OfSwarm


class ReadDraftPayload(OfSwarm):
    """No field but the tag."""


class DraftPayload(Response):
    spec_id: str
    program_md: str
    confidence: float
    deployment_confidence: float


@function("pipeline::spec_payload", Http("GET", "/pipeline/spec_payload"), role="viewer", is_public=True)
async def spec_payload(request: ReadDraftPayload) -> DraftPayload | None:
    """The draft as workers preload it; 204 while there is none."""
    return None
