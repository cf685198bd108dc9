"""Adding a proposal to a tag's hypotheses, always through the gate."""

from __future__ import annotations

from functions.hypothesis.gate import GateView, Proposal, gate_view, looked_at
from state.belief_facts import ProposalFacts
from state.change import Change
from state.errors import Conflict
from state.hypotheses import Hypotheses
from state.records.hypotheses import HypothesisSource

MOST = 1000
"""Most hypotheses of a tag, archived ones too: each is compared with every proposal."""


def is_full(facts: ProposalFacts) -> bool:
    """Whether a tag has MOST hypotheses."""
    return len(facts.open) + len(facts.archived) >= MOST


async def entered(tag: str, proposal: Proposal, source: HypothesisSource, hypotheses: Hypotheses) -> GateView:
    """The gate's answer; an accepted proposal is stored as a hypothesis.

    Raises:
        NotFound: no such tag. Conflict: the tag is full.
    """

    async def decide(change: Change) -> GateView:
        facts = await hypotheses.all(tag, change)
        if is_full(facts):
            raise Conflict(f"{tag!r} has {MOST} hypotheses", hint="open another tag for further ones")
        found = await looked_at(proposal, facts, source)
        if found.hypothesis is None:
            return change.idle(gate_view(found.answer))
        hypotheses.propose(change, facts, [found.hypothesis])
        return gate_view(found.answer, found.hypothesis.hypothesis_id)

    return await hypotheses.change(decide, in_turn=tag)
