"""program::current is the program that the lab has written last."""

from __future__ import annotations

from functions.contract import Http, Text, function
from functions.of_swarm import OfSwarm
from functions.views.program_document import document_for
from state.programs import Programs
from state.settings import Settings


class ReadProgram(OfSwarm):
    """No field but the tag."""


@function("program::current", Http("GET", "/program.md", has_etag=True), role="viewer", is_public=True)
async def current(request: ReadProgram, programs: Programs, settings: Settings) -> Text:
    """A tag's program, the charter with what was written last; empty while nothing was written."""
    served = await programs.served(request.tag_in(settings))
    return Text(content=document_for(served))
