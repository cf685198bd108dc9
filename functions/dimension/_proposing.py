"""How a proposed dimension enters the list of its tag: for agents, operators and language models alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from functions.rules.swarm.canaries.listing import check_share, displaced
from functions.rules.swarm.canaries.stalling import cycle_of
from functions.rules.swarm.canaries.trials import entered
from state.dimension_proposals import DimensionProposals
from state.records import ProposedDimension
from state.trial_facts import TrialFacts


@dataclass(frozen=True)
class Entered:
    """A proposal among those of its tag."""

    proposal: ProposedDimension
    counted: bool
    """It counts for the stall cycle that goes on."""
    facts: TrialFacts


async def enter(
    tag: str, fields: Mapping[str, Any], by: str, source: str, proposals: DimensionProposals
) -> Entered:
    """Enter a proposal, or count one that says the same; in a full list another one makes room.

    Raises:
        NotFound: no such tag. Conflict: an agent has just proposed as many as it may, or the list is full and none of
            it may leave.
    """
    while True:
        facts = await proposals.facts(tag)
        given = ProposedDimension.model_validate(
            {**fields, "proposal_id": "", "source": source, "proposed_by": by, "proposed_at": facts.now}
        )
        proposal, cycle = entered(facts, given), cycle_of(facts)
        before = next((p for p in facts.proposals if p.proposal_id == proposal.proposal_id), None)
        check_share(facts, proposal)
        leaves = displaced(facts, proposal)
        number, at = (facts.cycle, facts.cycle_at) if cycle is None else (cycle.number, cycle.at)
        if await proposals.propose(facts, proposal, number, at, leaves):
            counted = proposal.cycles != (before.cycles if before is not None else [])
            return Entered(proposal, counted, facts)
