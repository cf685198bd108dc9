"""hypothesis::graph_summary tells the graph of a swarm's hypotheses in prose."""

from __future__ import annotations

from pydantic import Field

from functions.contract import Http, Sparse, function
from functions.hypothesis.graph import TheoryGraph, drawn
from functions.of_swarm import OfSwarm
from functions.rules.beliefs.theory import summary_of
from state.hypotheses import Hypotheses
from state.settings import Settings


class ReadGraphSummary(OfSwarm):
    include_graph: bool = Field(False, description="send the graph, too")


class GraphInProse(Sparse):
    summary: str
    derived_not_authoritative: bool
    """It is told from the graph, and nothing is decided by it."""
    graph: TheoryGraph | None = None


@function("hypothesis::graph_summary", Http("GET", "/theory_graph/human"), role="viewer", is_public=True)
async def graph_summary(
    request: ReadGraphSummary, hypotheses: Hypotheses, settings: Settings
) -> GraphInProse:
    """What is known, undecided and given up, in a few sentences; with include_graph beside the graph."""
    facts = await hypotheses.find(request.tag_in(settings))
    found = [] if facts is None else [*facts.open, *facts.archived]
    return GraphInProse(
        summary=summary_of(found),
        derived_not_authoritative=True,
        graph=drawn(found) if request.include_graph else None,
    )
