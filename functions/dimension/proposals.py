"""dimension::proposals shows the dimensions that were proposed to a tag, and what has become of each."""

from __future__ import annotations

from functions.contract import Http, Response, function
from functions.of_swarm import OfSwarm
from functions.views.dimensions import ProposedDimensionView, proposed_view
from state.dimension_proposals import DimensionProposals
from state.errors import NotFound
from state.settings import Settings


class ListProposals(OfSwarm):
    """No field but the tag."""


class ListedProposals(Response):
    count: int
    proposals: list[ProposedDimensionView]
    """In the order in which they came in."""


@function("dimension::proposals", Http("GET", "/dimension_proposals"), role="viewer", is_public=True)
async def proposals(
    request: ListProposals, dimension_proposals: DimensionProposals, settings: Settings
) -> ListedProposals:
    """Dimensions that agents and language models propose to add to a tag, and what their trials have shown."""
    tag = request.tag_in(settings)
    try:
        facts = await dimension_proposals.facts(tag)
    except NotFound:
        if request.tag in (None, settings.swarm_tag):
            return ListedProposals(count=0, proposals=[])
        raise
    found = [proposed_view(proposal, facts) for proposal in facts.proposals]
    return ListedProposals(count=len(found), proposals=found)
