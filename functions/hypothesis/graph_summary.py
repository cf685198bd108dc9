"""hypothesis::graph_summary tells the graph of a swarm's hypotheses in prose."""

from __future__ import annotations

from pydantic import Field

from functions.contract import Http, Sparse, function
from functions.hypothesis.graph import TheoryGraph
from functions.of_swarm import OfSwarm


class ReadGraphSummary(OfSwarm):
    include_graph: bool = Field(False, description="send the graph, too")


class GraphInProse(Sparse):
    summary: str
    derived_not_authoritative: bool
    """It is told from the graph, and nothing is decided by it."""
    graph: TheoryGraph | None = None


@function("hypothesis::graph_summary", Http("GET", "/theory_graph/human"), role="viewer", is_public=True)
async def graph_summary(request: ReadGraphSummary) -> GraphInProse:
    """The hypotheses in a few sentences; with include_graph beside the graph."""
    return GraphInProse(
        summary="No hypotheses yet.",
        derived_not_authoritative=True,
        graph=TheoryGraph(nodes=[], edges=[]) if request.include_graph else None,
    )
