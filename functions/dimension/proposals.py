"""dimension::proposals shows the dimensions that a language model proposes."""

from __future__ import annotations

from typing import Any

from functions.contract import Http, Response, function
from functions.of_swarm import OfSwarm
from state.settings import Settings
from state.tags import Tags


class ListProposals(OfSwarm):
    """No field but the tag."""


class ListedProposals(Response):
    count: int
    proposals: list[dict[str, Any]]
    """None: this version has no language model that proposes any."""


@function("dimension::proposals", Http("GET", "/dimension_proposals"), role="viewer", is_public=True)
async def proposals(request: ListProposals, tags: Tags, settings: Settings) -> ListedProposals:
    """Dimensions that a language model proposes to add to a tag; there are none yet."""
    if request.tag is not None and request.tag != settings.swarm_tag:
        await tags.get(request.tag)
    return ListedProposals(count=0, proposals=[])
