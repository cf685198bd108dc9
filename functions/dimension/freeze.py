"""dimension::freeze holds a dimension at one value."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import Field

from functions.contract import Call, Command, Line, Response, function
from functions.rules.swarm.dimensions import frozen, named, with_one
from functions.views.dimensions import DimensionView, dimension_view
from state.change import Change
from state.dimensions import Dimensions
from state.ids import Tag as TagName
from state.records import Dimension, Value


class UnfreezeDimension(Command):
    tag: TagName
    name: str = Field(max_length=64, description="the dimension", examples=["LEARNING_RATE"])
    reason: Line = Field(description="why: the evidence", examples=["48 runs: no value differs from another"])


class FreezeDimension(UnfreezeDimension):
    value: Value = Field(description="what it is in every config from now on", examples=[0.003])


class ChangedDimension(Response):
    tag: str
    changed: bool
    """False where it was so before: then who froze it, and why, stay as they were."""
    version: int
    dimension: DimensionView


@function("dimension::freeze", role="operator", writes=True)
async def freeze(request: FreezeDimension, call: Call, dimensions: Dimensions) -> ChangedDimension:
    """Hold a dimension at one value in every config from now on; who, when and why are kept with it."""
    by = call.caller.name

    def after(d: Dimension, at: float) -> Dimension | None:
        return frozen(d, request.value, by=by, at=at, reason=request.reason)

    return await changed(request, by, after, dimensions)


async def changed(
    request: UnfreezeDimension,
    by: str,
    decided: Callable[[Dimension, float], Dimension | None],
    dimensions: Dimensions,
) -> ChangedDimension:
    """Freeze or unfreeze a dimension; `decided` takes it with the time, and returns None if nothing changes."""

    async def decide(change: Change) -> ChangedDimension:
        facts = await dimensions.of(request.tag, change)
        before = named(facts.dimensions, request.name, request.tag)
        after = decided(before, facts.now)
        if after is not None:
            event: dict[str, object] = {"name": after.name, "reason": request.reason, "by": by}
            rest = with_one(facts.dimensions, after)
            if after.frozen:
                event |= {"value": after.frozen_value, "before": before.frozen_value}
                dimensions.freeze(change, request.tag, rest, after.name, event)
            else:
                event |= {"value": before.frozen_value}
                dimensions.unfreeze(change, request.tag, rest, after.name, event)
        return ChangedDimension(
            tag=request.tag,
            changed=after is not None,
            version=facts.version + (after is not None),
            dimension=dimension_view(after or before),
        )

    return await dimensions.change(decide, in_turn=request.tag)
