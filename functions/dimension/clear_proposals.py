"""dimension::clear_proposals drops the dimensions that a language model proposes."""

from __future__ import annotations

from typing import Literal

from functions.contract import Command, Http, Response, function
from functions.of_swarm import OfSwarm
from state.settings import Settings
from state.tags import Tags


class ClearProposals(OfSwarm, Command):
    """No field but the tag."""


class ClearedProposals(Response):
    ok: Literal[True] = True


@function("dimension::clear_proposals", Http("DELETE", "/dimension_proposals"), role="operator", writes=True)
async def clear_proposals(request: ClearProposals, tags: Tags, settings: Settings) -> ClearedProposals:
    """Drop the dimensions that a language model proposes to add to a tag; there are none yet."""
    if request.tag is not None and request.tag != settings.swarm_tag:
        await tags.get(request.tag)
    return ClearedProposals()
