"""hypothesis::reopen tests the claims about a dimension again after it was unfrozen."""

from __future__ import annotations

from pydantic import Field

from functions.contract import Command, On, Response, function
from functions.rules.beliefs.dimension_claims import reopened
from functions.rules.beliefs.sharing import shared_out, texts
from state.change import Change
from state.hypotheses import Hypotheses
from state.ids import Tag as TagName


class ReopenClaims(Command):
    tag: TagName
    name: str = Field(max_length=64, description="the dimension", examples=["LEARNING_RATE"])


class ReopenedClaims(Response):
    hypotheses: list[str]
    """Ids of the claims that were irrelevant and are tested again."""


@function("hypothesis::reopen", On("dimension.unfrozen"), role="operator", writes=True)
async def reopen(request: ReopenClaims, hypotheses: Hypotheses) -> ReopenedClaims:
    """Begin the irrelevant claims about a dimension again at P = 0.5. Safe to run twice."""

    async def decide(change: Change) -> ReopenedClaims:
        facts = await hypotheses.all(request.tag, change)
        again = reopened(facts, request.name)
        if not again:
            return change.idle(ReopenedClaims(hypotheses=[]))
        populations = texts(shared_out(facts, [*facts.open, *again], facts.best_config))
        hypotheses.propose(change, facts, again, populations)
        return ReopenedClaims(hypotheses=[h.hypothesis_id for h in again])

    return await hypotheses.change(decide, in_turn=request.tag)
