"""Enters a proposed dimension in the list of its tag, for agents, operators and language models alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from functions.rules.swarm.canaries.proposing import check_share, displaced, entered
from functions.rules.swarm.canaries.stalling import newest_cycle
from state.change import Change
from state.dimension_proposals import DimensionProposals
from state.records import ProposedDimension
from state.trial_facts import TrialFacts


@dataclass(frozen=True)
class EnteredProposal:
    """A proposal among those of its tag."""

    proposal: ProposedDimension
    counted: bool
    """Whether it counts for the current stall cycle."""
    facts: TrialFacts


async def enter(
    tag: str, fields: Mapping[str, Any], by: str, source: str, proposals: DimensionProposals
) -> EnteredProposal:
    """Enter a proposal, or count the listed one with the same id. In a full list another one makes room.

    Raises:
        NotFound: no such tag. Conflict: the agent's quota is used up, or no proposal may leave the full list.
    """

    async def decide(change: Change) -> EnteredProposal:
        facts = await proposals.facts(tag, change)
        given = ProposedDimension.model_validate(
            {**fields, "proposal_id": "", "source": source, "proposed_by": by, "proposed_at": facts.now}
        )
        proposal, cycle = entered(facts, given), newest_cycle(facts)
        before = next((p for p in facts.proposals if p.proposal_id == proposal.proposal_id), None)
        check_share(facts, proposal)
        leaves = displaced(facts, proposal)
        proposals.propose(change, tag, proposal, cycle.number, cycle.at, leaves)
        counted = proposal.cycles != (before.cycles if before is not None else [])
        return EnteredProposal(proposal, counted, facts)

    return await proposals.change(decide, in_turn=tag)
