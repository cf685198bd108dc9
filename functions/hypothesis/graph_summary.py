"""hypothesis::graph_summary summarises a swarm's hypotheses in a few sentences."""

from __future__ import annotations

import asyncio

from pydantic import BaseModel, ConfigDict, Field

from functions.contract import Http, Sparse, function
from functions.hypothesis.graph import TheoryGraph, drawn
from functions.of_swarm import OfSwarm
from functions.rules.beliefs.theory import status_digest, summary_of
from state.graph_summaries import GraphSummaries
from state.hypotheses import Hypotheses
from state.settings import Settings


class ReadGraphSummary(OfSwarm):
    include_graph: bool = Field(False, description="send the graph, too")


class DerivedLayer(BaseModel):
    """A summary of the graph, which decides nothing."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    summary_text: str
    author: str | None
    """The language model that wrote the summary; null: it is computed."""
    derived_not_authoritative: bool = True


class GraphInProse(Sparse):
    derived_layer: DerivedLayer
    graph: TheoryGraph | None = None


@function("hypothesis::graph_summary", Http("GET", "/theory_graph/human"), role="viewer", is_public=True)
async def graph_summary(
    request: ReadGraphSummary, hypotheses: Hypotheses, graphs: GraphSummaries, settings: Settings
) -> GraphInProse:
    """Supported, refuted and undecided hypotheses in a few sentences; with include_graph, the graph too.

    A language model's summary is served until the status of a hypothesis changes. Then the summary is computed.
    """
    tag = request.tag_in(settings)
    facts, written = await asyncio.gather(hypotheses.find(tag), graphs.find(tag))
    found = [] if facts is None else [*facts.open, *facts.archived]
    if written is not None and written.digest == status_digest(found):
        layer = DerivedLayer(summary_text=written.text, author=written.author)
    else:
        layer = DerivedLayer(summary_text=summary_of(found), author=None)
    return GraphInProse(
        derived_layer=layer,
        graph=await drawn(found) if request.include_graph else None,
    )
