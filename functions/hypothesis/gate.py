"""hypothesis::gate checks a proposed hypothesis without adding it."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from pydantic import Field

from functions.contract import Request, Response, function
from functions.rules.beliefs.gate import GateAnswer, Gated, GateReason, gated
from functions.rules.beliefs.sharing import reference_config
from state.belief_facts import ProposalFacts
from state.hypotheses import Hypotheses
from state.ids import Tag as TagName
from state.records.hypotheses import HypothesisSource

EXAMPLE = {"statement": "deeper models reach a lower loss", "config_constraint": {"DEPTH": {"min": 12}}}
Proposal = dict[str, Any]
PROPOSED = (
    "the hypothesis: a statement, and as far as they matter type, importance, config_constraint, dimensions,"
    " phase, test_spec, parent_id and rationale"
)


class TryProposal(Request):
    tag: TagName
    proposal: Proposal = Field(max_length=20, description=PROPOSED, examples=[EXAMPLE])


class GateView(Response):
    accepted: bool
    reason: GateReason
    registry_add: bool
    """The proposal becomes a hypothesis of the tag."""
    immediate_forced_pursuit: Literal[False]
    """An accepted hypothesis gets no workers before the next allocation."""
    detail: str
    hint: str | None = Field(description="what to do about it")
    duplicate_of: str | None
    """Id of the hypothesis that already makes this claim."""
    similarity: float | None
    """Similarity, 0 to 1, to the nearest hypothesis."""
    hypothesis_id: str | None
    """Id of the new hypothesis."""


def gate_view(answer: GateAnswer, hypothesis_id: str | None = None) -> GateView:
    return GateView(**vars(answer), hypothesis_id=hypothesis_id)


async def looked_at(proposal: Proposal, facts: ProposalFacts, source: HypothesisSource) -> Gated:
    """The gate's decision; in a thread, because it compares a proposal with every hypothesis."""
    return await asyncio.to_thread(
        gated,
        proposal,
        facts.tag.name,
        facts.dimensions,
        [*facts.open, *facts.archived],
        reference_config(facts.dimensions, facts.best_config),
        source=source,
        now=facts.now,
    )


@function("hypothesis::gate", role="agent")
async def gate(request: TryProposal, hypotheses: Hypotheses) -> GateView:
    """Whether a hypothesis would be accepted, and if not, why; nothing is added."""
    found = await looked_at(request.proposal, await hypotheses.all(request.tag), "operator")
    return gate_view(found.answer)
