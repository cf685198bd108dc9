"""dimension::freeze holds a dimension at one value."""

from __future__ import annotations

from pydantic import Field

from functions.contract import Call, Command, Line, Response, function
from functions.rules.swarm.dimensions import frozen, named, with_one
from functions.views.dimensions import DimensionView, dimension_view
from state.dimensions import Dimensions
from state.ids import Tag as TagName
from state.records import Value


class FreezeDimension(Command):
    tag: TagName
    name: str = Field(max_length=64, description="the dimension", examples=["LEARNING_RATE"])
    value: Value = Field(description="what it is in every config from now on", examples=[0.003])
    reason: Line = Field(description="why: the evidence", examples=["48 runs: no value differs from another"])


class FrozenDimension(Response):
    tag: str
    changed: bool
    """False where it was frozen at this value before: then who froze it, and why, stay as they were."""
    version: int
    dimension: DimensionView


@function("dimension::freeze", role="operator", writes=True)
async def freeze(request: FreezeDimension, call: Call, dimensions: Dimensions) -> FrozenDimension:
    """Hold a dimension at one value in every config from now on; who, when and why are kept with it."""
    by = call.caller.name
    while True:
        facts = await dimensions.of(request.tag)
        before = named(facts.dimensions, request.name, request.tag)
        after = frozen(before, request.value, by=by, at=facts.now, reason=request.reason)
        version: int | None = facts.version
        if after is not None:
            event = {
                "name": after.name,
                "value": after.frozen_value,
                "reason": request.reason,
                "by": by,
                "before": before.frozen_value,
            }
            version = await dimensions.freeze(request.tag, facts, with_one(facts.dimensions, after), event)
        if version is not None:
            return FrozenDimension(
                tag=request.tag,
                changed=after is not None,
                version=version,
                dimension=dimension_view(after or before),
            )
