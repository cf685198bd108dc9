"""hypothesis::graph is the graph of a swarm's hypotheses."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from functions.contract import Http, Request, Response, function
from state.ids import Tag as TagName


class ReadGraph(Request):
    tag: TagName | None = Field(None, description="the tag; default: NIGHTJAR_SWARM_TAG", examples=["swarm"])


class TheoryGraph(Response):
    nodes: list[dict[str, Any]]
    edges: list[dict[str, Any]]


@function("hypothesis::graph", Http("GET", "/theory_graph"), role="viewer", is_public=True)
async def graph(request: ReadGraph) -> TheoryGraph:
    """Hypotheses and how they hang together; empty while the swarm has none."""
    return TheoryGraph(nodes=[], edges=[])
