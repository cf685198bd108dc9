"""program::current is the programme that the lab has generated last."""

from __future__ import annotations

from pydantic import Field

from functions.contract import Http, Request, Text, function
from state.ids import Tag as TagName


class ReadProgram(Request):
    tag: TagName | None = Field(None, description="the tag; default: NIGHTJAR_SWARM_TAG", examples=["swarm"])


@function("program::current", Http("GET", "/program.md"), role="viewer", is_public=True)
async def current(request: ReadProgram) -> Text:
    """The generated programme; empty while there is none, and workers keep the one that they came with."""
    return Text(content="")
