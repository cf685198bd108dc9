"""dimension::freeze_irrelevant holds a dimension at one value that was found to be irrelevant."""

from __future__ import annotations

from pydantic import Field

from functions.contract import Command, On, Response, function
from functions.rules.beliefs.dimension_claims import irrelevant_dimension
from functions.rules.swarm.dimensions import frozen, with_one
from state.change import Change
from state.dimensions import Dimensions
from state.hypotheses import Hypotheses
from state.ids import Id
from state.ids import Tag as TagName

BY = "nightjar"


class FreezeIrrelevant(Command):
    tag: TagName
    hypothesis_id: Id = Field(description="the claim that was settled", examples=["hyp_0a1b2c"])


class FrozeIrrelevant(Response):
    dimension: str | None
    """Frozen now; null: the claim is not irrelevant, or says nothing of one whole dimension, or it was frozen."""


@function("dimension::freeze_irrelevant", On("hypothesis.settled"), role="operator", writes=True)
async def freeze_irrelevant(
    request: FreezeIrrelevant, dimensions: Dimensions, hypotheses: Hypotheses
) -> FrozeIrrelevant:
    """Freeze the dimension of an irrelevant claim where its reference runs had it; an operator may unfreeze it."""
    h = await hypotheses.get(request.tag, request.hypothesis_id)
    name = irrelevant_dimension(h)
    if name is None:
        return FrozeIrrelevant(dimension=None)
    reason = f"{h.hypothesis_id} is irrelevant: it changes less than the margin anywhere in its range"

    async def decide(change: Change) -> str | None:
        facts = await dimensions.of(request.tag, change)
        before = next((d for d in facts.dimensions if d.name == name and not d.frozen), None)
        if before is None:
            return None
        after = frozen(before, h.reference_config[name], by=BY, at=facts.now, reason=reason)
        if after is None:
            return None
        event = {"name": name, "value": after.frozen_value, "reason": reason, "by": BY, "before": None}
        dimensions.freeze(change, request.tag, with_one(facts.dimensions, after), name, event)
        return name

    return FrozeIrrelevant(dimension=await dimensions.change(decide, in_turn=request.tag))
