"""How many proposed dimensions a tag lists, how many an agent may add, and which one leaves a full list."""

from __future__ import annotations

from functions.rules.swarm.canaries.stalling import CYCLE, cycle_of
from state.errors import Conflict
from state.records import ProposedDimension
from state.trial_facts import TrialFacts

MOST = 100
"""Proposals of a tag."""
MOST_OF_ONE = 10
"""Of these, those that one agent adds in 25 results, as long as a stall cycle: others shall have their say, too."""


def check_share(facts: TrialFacts, entering: ProposedDimension) -> None:
    """Refuse an agent's proposal that is new, where the agent has just added as many as it may.

    Raises:
        Conflict: with when to come back.
    """
    if entering.source != "agent" or any(p.proposal_id == entering.proposal_id for p in facts.proposals):
        return
    since = facts.tag.results - CYCLE
    own = [p for p in facts.proposals if p.proposed_by == entering.proposed_by and p.source == "agent"]
    newest = [
        p.proposed_results for p in own if p.proposed_results is not None and p.proposed_results > since
    ]
    if len(newest) >= MOST_OF_ONE:
        raise Conflict(
            f"{entering.proposed_by!r} has proposed {len(newest)} dimensions of {facts.tag.name!r} within"
            f" {CYCLE} results: {MOST_OF_ONE} is the most",
            hint=f"propose others after {min(newest) + CYCLE - facts.tag.results} more results; those that are"
            " listed may be proposed again at any time",
        )


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
