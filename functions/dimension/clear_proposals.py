"""dimension::clear_proposals drops the dimensions that were proposed to a tag."""

from __future__ import annotations

from typing import Literal

from functions.contract import Command, Http, Response, function
from functions.of_swarm import OfSwarm
from state.change import Change
from state.dimension_proposals import DimensionProposals
from state.errors import NotFound
from state.settings import Settings


class ClearProposals(OfSwarm, Command):
    """No field but the tag."""


class ClearedProposals(Response):
    ok: Literal[True] = True
    dropped: int
    """What is on trial stays."""


@function("dimension::clear_proposals", Http("DELETE", "/dimension_proposals"), role="operator", writes=True)
async def clear_proposals(
    request: ClearProposals, proposals: DimensionProposals, settings: Settings
) -> ClearedProposals:
    """Drop the dimensions that were proposed to a tag, but for those on trial; their counts begin anew."""
    tag = request.tag_in(settings)

    async def decide(change: Change) -> ClearedProposals:
        facts = await proposals.facts(tag, change)
        dropped = [p.proposal_id for p in facts.proposals if p.state != "on_trial"]
        if not dropped:
            return change.idle(ClearedProposals(dropped=0))
        proposals.clear(change, tag, dropped)
        return ClearedProposals(dropped=len(dropped))

    try:
        return await proposals.change(decide, in_turn=tag)
    except NotFound:
        if request.tag in (None, settings.swarm_tag):
            return ClearedProposals(dropped=0)
        raise
