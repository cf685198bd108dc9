"""How a proposal enters a tag's hypotheses: through the gate, in all cases."""

from __future__ import annotations

from functions.hypothesis.gate import GateView, Proposal, gate_view, looked_at
from state.belief_facts import ProposalFacts
from state.errors import Conflict
from state.hypotheses import Hypotheses
from state.records.hypotheses import HypothesisSource

MOST = 1000
"""Hypotheses of a tag, archived ones too: all of them are compared with what is proposed."""


def is_full(facts: ProposalFacts) -> bool:
    """Whether a tag has as many hypotheses as it may have."""
    return len(facts.open) + len(facts.archived) >= MOST


async def entered(tag: str, proposal: Proposal, source: HypothesisSource, hypotheses: Hypotheses) -> GateView:
    """What the gate says; what it accepts is a hypothesis then.

    Raises:
        NotFound: no such tag. Conflict: it has as many hypotheses as it may have.
    """
    while True:
        facts = await hypotheses.all(tag)
        if is_full(facts):
            raise Conflict(f"{tag!r} has {MOST} hypotheses", hint="open another tag for further ones")
        found = await looked_at(proposal, facts, source)
        if found.hypothesis is None:
            return gate_view(found.answer)
        if await hypotheses.propose(facts, [found.hypothesis]):
            return gate_view(found.answer, found.hypothesis.hypothesis_id)
