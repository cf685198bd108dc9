"""hypothesis::graph is the graph of a swarm's hypotheses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from functions.contract import Http, Response, function
from functions.of_swarm import OfSwarm
from functions.rules.beliefs.theory import children_by_id, edges_of, linked_by_id
from functions.views.hypotheses import HypothesisView, hypothesis_view
from state.hypotheses import Hypotheses
from state.records import Hypothesis
from state.settings import Settings


class ReadGraph(OfSwarm):
    """No field but the tag."""


class TheoryNode(HypothesisView):
    id: str
    """hypothesis_id, under its published name."""
    posterior: float
    """posterior_mean, under its published name."""
    children_ids: list[str]
    linked_ids: list[str]
    """Ids of hypotheses that share a dimension."""


class GraphEdge(BaseModel):
    model_config = ConfigDict(frozen=True, defer_build=True, serialize_by_alias=True)

    type: Literal["decomposes_into", "linked"]
    source: str = Field(alias="from")
    target: str = Field(alias="to")


class TheoryGraph(Response):
    nodes: list[TheoryNode]
    edges: list[GraphEdge]


@function("hypothesis::graph", Http("GET", "/theory_graph"), role="viewer", is_public=True)
async def graph(request: ReadGraph, hypotheses: Hypotheses, settings: Settings) -> TheoryGraph:
    """All hypotheses, archived ones too, and their relations; empty while the swarm has none."""
    facts = await hypotheses.find(request.tag_in(settings))
    return await drawn([] if facts is None else [*facts.open, *facts.archived])


async def drawn(found: list[Hypothesis]) -> TheoryGraph:
    """The graph of these hypotheses; in a thread, because a thousand have some hundred thousand edges."""
    return await asyncio.to_thread(_drawn, found)


def _drawn(found: list[Hypothesis]) -> TheoryGraph:
    edges = edges_of(found)
    children, linked = children_by_id(edges), linked_by_id(edges)
    return TheoryGraph(
        nodes=[_node(h, children.get(h.hypothesis_id, ()), linked.get(h.hypothesis_id, ())) for h in found],
        edges=[GraphEdge(type=e.kind, **{"from": e.source, "to": e.target}) for e in edges],
    )


def _node(h: Hypothesis, children: Sequence[str], linked: Sequence[str]) -> TheoryNode:
    shown = hypothesis_view(h)
    return TheoryNode(
        **shown.model_dump(),
        id=h.hypothesis_id,
        posterior=shown.posterior_mean,
        children_ids=[*children],
        linked_ids=[*linked],
    )
