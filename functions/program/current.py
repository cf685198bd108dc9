"""program::current is the programme that the lab has generated last."""

from __future__ import annotations

from functions.contract import Http, Text, function
from functions.of_swarm import OfSwarm


class ReadProgram(OfSwarm):
    """No field but the tag."""


@function("program::current", Http("GET", "/program.md"), role="viewer", is_public=True)
async def current(request: ReadProgram) -> Text:
    """The generated programme; empty while there is none, and workers keep the one that they came with."""
    return Text(content="")
