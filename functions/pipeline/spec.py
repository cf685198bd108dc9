"""pipeline::spec is the draft of the program for the next batch of runs."""

from __future__ import annotations

from functions.contract import Call, Http, Text, function
from functions.formats.charter import Reader
from functions.of_swarm import OfSwarm
from functions.pipeline._served import served
from functions.pipeline._stores import Reading
from state.settings import Settings


class ReadDraft(OfSwarm):
    """No field but the tag."""


@function("pipeline::spec", Http("GET", "/pipeline/spec"), role="viewer", is_public=True)
async def spec(request: ReadDraft, call: Call, stores: Reading, settings: Settings) -> Text | None:
    """The drafted program; 204 while no draft is ready or confirmed."""
    tag = request.tag_in(settings)
    found = await served(tag, stores, settings)
    reader = Reader(call.lab_url(settings), tag, is_worker=True)
    return None if found is None else Text(content=found.document(reader))
