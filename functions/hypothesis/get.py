"""hypothesis::get shows one hypothesis with its evidence."""

from __future__ import annotations

import builtins

from pydantic import Field

from functions.contract import Http, Response, function
from functions.of_swarm import OfSwarm
from functions.views.hypotheses import EvidenceView, HypothesisView, evidence_view, hypothesis_view
from state.hypotheses import Hypotheses
from state.ids import Id
from state.settings import Settings


class ReadHypothesis(OfSwarm):
    hypothesis_id: Id = Field(description="which one; hypothesis::list shows them", examples=["hyp_0a1b2c"])


class FoundHypothesis(Response):
    hypothesis: HypothesisView
    evidence: builtins.list[EvidenceView]
    """Its newest evidence, oldest first."""


@function("hypothesis::get", Http("GET", "/api/hypothesis/{hypothesis_id}"), role="viewer")
async def get(request: ReadHypothesis, hypotheses: Hypotheses, settings: Settings) -> FoundHypothesis:
    """A hypothesis with its belief and its newest evidence."""
    found = await hypotheses.get(request.tag_in(settings), request.hypothesis_id)
    return FoundHypothesis(
        hypothesis=hypothesis_view(found), evidence=[evidence_view(e) for e in found.evidence]
    )
