"""How many proposed dimensions a tag lists, and which one leaves a full list for a new one."""

from __future__ import annotations

from functions.rules.swarm.canaries.stalling import cycle_of
from state.errors import Conflict
from state.records import ProposedDimension
from state.trial_facts import TrialFacts

MOST = 100
"""Proposals of a tag."""


def displaced(facts: TrialFacts, entering: ProposedDimension) -> ProposedDimension | None:
    """The proposal that leaves the list as this one enters it; None: there is a place, or it is listed already.

    It is the oldest that is neither on trial nor promoted, and has not counted in the newest stall cycle.

    Raises:
        Conflict: there is no such proposal.
    """
    is_listed = any(p.proposal_id == entering.proposal_id for p in facts.proposals)
    if is_listed or len(facts.proposals) < MOST:
        return None
    running = cycle_of(facts)
    newest = facts.cycle if running is None else running.number
    for proposal in facts.proposals:
        if proposal.state not in ("on_trial", "promoted") and newest not in proposal.cycles:
            return proposal
    raise Conflict(
        f"{facts.tag.name!r} has {MOST} proposed dimensions, and all are tried, promoted or new in this stall cycle",
        hint="propose it in the next stall cycle; DELETE /dimension_proposals drops those that are not on trial",
    )
