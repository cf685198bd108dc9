"""pipeline::spec_payload is the drafted program with how far it can be relied on."""

from __future__ import annotations

from functions.contract import Http, Response, function
from functions.of_swarm import OfSwarm
from functions.pipeline._served import served
from functions.pipeline._stores import Reading
from state.settings import Settings


class ReadDraftPayload(OfSwarm):
    """No field but the tag."""


class DraftPayload(Response):
    spec_id: str
    program_md: str
    """The whole program: workers replace theirs by it."""
    confidence: float
    """Share of the resamples that come to what the draft predicts, 0 to 1."""
    deployment_confidence: float
    """How far drafts are trusted, 0 to 1."""


@function(
    "pipeline::spec_payload", Http("GET", "/pipeline/spec_payload"), role=("viewer", "worker"), is_public=True
)
async def spec_payload(request: ReadDraftPayload, stores: Reading, settings: Settings) -> DraftPayload | None:
    """The draft as workers preload it; 204 while none is ready or confirmed."""
    found = await served(request.tag_in(settings), stores, settings)
    if found is None:
        return None
    return DraftPayload(
        spec_id=found.draft.spec_id,
        program_md=found.document,
        confidence=found.draft.confidence,
        deployment_confidence=found.bank,
    )
