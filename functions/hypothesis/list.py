"""hypothesis::list shows a tag's hypotheses with their beliefs."""

from __future__ import annotations

import builtins

from pydantic import Field

from functions.contract import Response, function
from functions.of_swarm import OfSwarm
from functions.views.hypotheses import HypothesisView, hypothesis_view
from state.hypotheses import Hypotheses
from state.settings import Settings


class ListHypotheses(OfSwarm):
    archived: bool = Field(False, description="include refuted and irrelevant ones")


class ListedHypotheses(Response):
    tag: str
    hypotheses: builtins.list[HypothesisView]
    """In the order of their proposal."""


@function("hypothesis::list", role="viewer")
async def list(request: ListHypotheses, hypotheses: Hypotheses, settings: Settings) -> ListedHypotheses:
    """The open hypotheses of a tag with their beliefs; empty if the tag does not exist."""
    tag = request.tag_in(settings)
    facts = await hypotheses.find(tag)
    found = [] if facts is None else [*facts.open, *(facts.archived if request.archived else ())]
    return ListedHypotheses(tag=tag, hypotheses=[hypothesis_view(h) for h in found])
