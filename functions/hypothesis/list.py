"""hypothesis::list shows what is believed of a tag's hypotheses."""

from __future__ import annotations

import builtins

from pydantic import Field

from functions.contract import Response, function
from functions.of_swarm import OfSwarm
from functions.views.hypotheses import HypothesisView, hypothesis_view
from state.hypotheses import Hypotheses
from state.settings import Settings


class ListHypotheses(OfSwarm):
    archived: bool = Field(False, description="also those that were refuted, or are irrelevant")


class ListedHypotheses(Response):
    tag: str
    hypotheses: builtins.list[HypothesisView]
    """In the order in which they were proposed."""


@function("hypothesis::list", role="viewer")
async def list(request: ListHypotheses, hypotheses: Hypotheses, settings: Settings) -> ListedHypotheses:
    """Every hypothesis that results still bear on, with how far it is believed and why; none without such a tag."""
    tag = request.tag_in(settings)
    facts = await hypotheses.find(tag)
    found = [] if facts is None else [*facts.open, *(facts.archived if request.archived else ())]
    return ListedHypotheses(tag=tag, hypotheses=[hypothesis_view(h) for h in found])
