"""dimension::unfreeze lets a frozen dimension vary again."""

from __future__ import annotations

from functions.contract import Call, function
from functions.dimension.freeze import ChangedDimension, UnfreezeDimension, changed
from functions.rules.swarm.dimensions import unfrozen
from state.dimensions import Dimensions


@function("dimension::unfreeze", role="operator", writes=True)
async def unfreeze(request: UnfreezeDimension, call: Call, dimensions: Dimensions) -> ChangedDimension:
    """Let a frozen dimension vary again in its whole range."""
    return await changed(request, call.caller.name, lambda d, _: unfrozen(d), dimensions)
