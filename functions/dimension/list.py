"""dimension::list shows what a swarm may vary in a tag."""

from __future__ import annotations

import builtins

from functions.contract import Request, Response, function
from functions.views.dimensions import DimensionView, dimension_view
from state.dimensions import Dimensions
from state.ids import Tag as TagName


class ListDimensions(Request):
    tag: TagName


class ListedDimensions(Response):
    tag: str
    version: int
    """Counts the changes of the tag's dimensions; 0: none was defined."""
    dimensions: builtins.list[DimensionView]
    """In the order in which they were defined."""


@function("dimension::list", role="viewer")
async def list(request: ListDimensions, dimensions: Dimensions) -> ListedDimensions:
    """Every dimension of a tag with its range, what it is frozen at, and how much it matters."""
    facts = await dimensions.of(request.tag)
    return ListedDimensions(
        tag=request.tag,
        version=facts.version,
        dimensions=[dimension_view(d) for d in facts.dimensions],
    )
