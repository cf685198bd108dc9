"""hypothesis::graph is the graph of a swarm's hypotheses."""

from __future__ import annotations

from typing import Any

from functions.contract import Http, Response, function
from functions.of_swarm import OfSwarm


class ReadGraph(OfSwarm):
    """No field but the tag."""


class TheoryGraph(Response):
    nodes: list[dict[str, Any]]
    edges: list[dict[str, Any]]


@function("hypothesis::graph", Http("GET", "/theory_graph"), role="viewer", is_public=True)
async def graph(request: ReadGraph) -> TheoryGraph:
    """Hypotheses and how they hang together; empty while the swarm has none."""
    return TheoryGraph(nodes=[], edges=[])
