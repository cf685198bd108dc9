"""pipeline::spec is the programme that is drafted for the next batch of runs."""

from __future__ import annotations

from functions.contract import Http, Text, function
from functions.of_swarm import OfSwarm


class ReadDraft(OfSwarm):
    """No field but the tag."""


@function("pipeline::spec", Http("GET", "/pipeline/spec"), role="viewer", is_public=True)
async def spec(request: ReadDraft) -> Text | None:
    """The draft's text; 204 while there is none."""
    return None
