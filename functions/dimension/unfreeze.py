"""dimension::unfreeze lets a frozen dimension vary again."""

from __future__ import annotations

from pydantic import Field

from functions.contract import Call, Command, Line, Response, function
from functions.rules.swarm.dimensions import named, unfrozen, with_one
from functions.views.dimensions import DimensionView, dimension_view
from state.dimensions import Dimensions
from state.ids import Tag as TagName


class UnfreezeDimension(Command):
    tag: TagName
    name: str = Field(max_length=64, description="the dimension", examples=["LEARNING_RATE"])
    reason: Line = Field(description="why: the evidence", examples=["the data is another one"])


class UnfrozenDimension(Response):
    tag: str
    changed: bool
    """False where it was not frozen."""
    version: int
    dimension: DimensionView


@function("dimension::unfreeze", role="operator", writes=True)
async def unfreeze(request: UnfreezeDimension, call: Call, dimensions: Dimensions) -> UnfrozenDimension:
    """Let a frozen dimension vary again in its whole range."""
    while True:
        facts = await dimensions.of(request.tag)
        before = named(facts.dimensions, request.name, request.tag)
        after = unfrozen(before)
        version: int | None = facts.version
        if after is not None:
            event = {
                "name": after.name,
                "value": before.frozen_value,
                "reason": request.reason,
                "by": call.caller.name,
            }
            version = await dimensions.unfreeze(request.tag, facts, with_one(facts.dimensions, after), event)
        if version is not None:
            return UnfrozenDimension(
                tag=request.tag,
                changed=after is not None,
                version=version,
                dimension=dimension_view(after or before),
            )
