"""journal::read is the journal of a swarm, as Markdown."""

from __future__ import annotations

from functions.contract import Http, Text, function
from functions.of_swarm import OfSwarm
from functions.views.journal_markdown import journal_text
from state.journal import Journal
from state.settings import Settings


class ReadJournal(OfSwarm):
    """No field but the tag."""


@function("journal::read", Http("GET", "/meta_log"), role="viewer", is_public=True)
async def read(request: ReadJournal, journal: Journal, settings: Settings) -> Text:
    """The newest checkpoints of the journal, oldest first, at most 256 KiB; empty while there is none."""
    tag = request.tag_in(settings)
    return Text(content=journal_text(await journal.read(tag), tag))
