"""dimension::clear_proposals drops the dimensions that a language model proposes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from functions.contract import Command, Http, Response, function
from state.ids import Tag as TagName
from state.settings import Settings
from state.tags import Tags


class ClearProposals(Command):
    tag: TagName | None = Field(None, description="the tag; default: NIGHTJAR_SWARM_TAG", examples=["swarm"])


class ClearedProposals(Response):
    ok: Literal[True] = True


@function("dimension::clear_proposals", Http("DELETE", "/dimension_proposals"), role="operator", writes=True)
async def clear_proposals(request: ClearProposals, tags: Tags, settings: Settings) -> ClearedProposals:
    """Drop the dimensions that a language model proposes to add to a tag; there are none yet."""
    if request.tag is not None and request.tag != settings.swarm_tag:
        await tags.get(request.tag)
    return ClearedProposals()
