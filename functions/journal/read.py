"""journal::read is the journal of a swarm, as Markdown."""

from __future__ import annotations

from functions.contract import Http, Text, function
from functions.of_swarm import OfSwarm


class ReadJournal(OfSwarm):
    """No field but the tag."""


@function("journal::read", Http("GET", "/meta_log"), role="viewer", is_public=True)
async def read(request: ReadJournal) -> Text:
    """The journal's checkpoints, oldest first; empty while there is none."""
    return Text(content="")
