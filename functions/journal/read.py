"""journal::read is the journal of a swarm, as Markdown."""

from __future__ import annotations

from pydantic import Field

from functions.contract import Http, Request, Text, function
from state.ids import Tag as TagName


class ReadJournal(Request):
    tag: TagName | None = Field(None, description="the tag; default: NIGHTJAR_SWARM_TAG", examples=["swarm"])


@function("journal::read", Http("GET", "/meta_log"), role="viewer", is_public=True)
async def read(request: ReadJournal) -> Text:
    """The journal's checkpoints, oldest first; empty while there is none."""
    return Text(content="")
