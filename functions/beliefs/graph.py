"""What a swarm believes: the graph of its hypotheses, the summary in prose, and the checkpoints of the journal."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from functions.beliefs.rules.theory import (
    GraphEdge,
    chapter,
    edges_of,
    is_due,
    neighbours,
    status_digest,
    summary_of,
)
from functions.beliefs.views import HypothesisView, checkpoint_text, hypothesis_view, journal_text
from functions.formats.authored import GraphSummary
from functions.kernel.authoring import PiLane
from functions.kernel.contract import Call, Command, Http, OfSwarm, On, Response, Sparse, Text, function
from functions.kernel.lanes import Author, Commission
from functions.pi.views import graph_text
from state.change import Change
from state.hypotheses import GraphSummaries, Hypotheses, Journal, StoredGraphSummary
from state.ids import Tag as TagName
from state.records import Hypothesis
from state.settings import Settings


@dataclass(frozen=True)
class Telling:
    """The stores of a graph in prose."""

    hypotheses: Hypotheses
    graphs: GraphSummaries
    lane: PiLane


class TheoryNode(HypothesisView):
    id: str
    """hypothesis_id, under its published name."""
    posterior: float
    """posterior_mean, under its published name."""
    children_ids: list[str]
    linked_ids: list[str]
    """Ids of hypotheses that share a dimension."""


class TheoryGraph(Response):
    nodes: list[TheoryNode]
    edges: list[GraphEdge]


@function("hypothesis::graph", Http("GET", "/theory_graph"), role="viewer", is_public=True)
async def graph(request: OfSwarm, hypotheses: Hypotheses, settings: Settings) -> TheoryGraph:
    """All hypotheses, archived ones too, and their relations; empty while the swarm has none."""
    facts = await hypotheses.find(request.tag_in(settings))
    return await drawn([] if facts is None else [*facts.open, *facts.archived])


async def drawn(found: list[Hypothesis]) -> TheoryGraph:
    """The graph of these hypotheses; in a thread, because a thousand have some hundred thousand edges."""
    return await asyncio.to_thread(_drawn, found)


def _drawn(found: list[Hypothesis]) -> TheoryGraph:
    edges = edges_of(found)
    children, linked = neighbours(edges)
    return TheoryGraph(
        nodes=[_node(h, children.get(h.hypothesis_id, ()), linked.get(h.hypothesis_id, ())) for h in found],
        edges=edges,
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


class ReadGraphSummary(OfSwarm):
    include_graph: bool = Field(False, description="send the graph, too")


class DerivedLayer(Response):
    """A summary of the graph, which decides nothing."""

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
    return GraphInProse(derived_layer=layer, graph=await drawn(found) if request.include_graph else None)


FUNCTION = "hypothesis::tell"
TASK = (
    "Summarise the hypotheses for a person who has not followed the search: what is known, what is open and why, what"
    " was given up, and how they relate. Use figures only as they are given."
)


class TellGraph(Command):
    tag: TagName
    number: int = Field(1, ge=1, description="the version of the program that it goes with", examples=[7])


class TellingBegun(Response):
    tag: str
    became: Literal["asked", "computed"]
    """asked: a language model writes. computed: there is none, and /theory_graph/human computes its summary."""


class ToldOfGraph(Response):
    tag: str
    author: str | None
    """Who wrote the summary; null: no usable reply came, or nothing has changed."""


@function("hypothesis::tell", role="operator", writes=True, keeps_answer=False)
async def accept(request: TellGraph, stores: Telling) -> TellingBegun:
    """Ask the lane `pi` if it has a language model."""
    asked = await stores.lane.asked(FUNCTION, request.tag, request.number)
    return TellingBegun(tag=request.tag, became="asked" if asked else "computed")


@function(
    "hypothesis::tell",
    On("program.written"),
    role="operator",
    lane="pi",
    writes=True,
    keeps_answer=False,
    accept=accept,
)
async def tell(request: TellGraph, call: Call, stores: Telling, author: Author) -> ToldOfGraph:
    """Write a new summary if the status of a hypothesis has changed since the last one."""
    facts = await stores.hypotheses.find(request.tag)
    found = [] if facts is None else [*facts.open, *facts.archived]
    digest, before = status_digest(found), await stores.graphs.find(request.tag)
    if not found or (before is not None and before.digest == digest):
        return ToldOfGraph(tag=request.tag, author=None)
    given = await author.write(GraphSummary, Commission(TASK, graph_text(found)))
    if given is None:
        return ToldOfGraph(tag=request.tag, author=None)
    await stores.graphs.tell(request.tag, StoredGraphSummary(given.summary, author.name, digest))
    return ToldOfGraph(tag=request.tag, author=author.name)


# -- The journal: its checkpoints.


class WriteCheckpoint(Command):
    tag: TagName
    results: int | None = Field(
        None,
        ge=1,
        description="write only if no checkpoint covers this many results; default: if anything is new",
        examples=[100],
    )


class WrittenCheckpoint(Response):
    written: bool
    """False: nothing is new since the newest checkpoint."""
    number: int | None
    """Number of the newest checkpoint; null: there is none."""
    text: str | None
    """Markdown of the checkpoint, if it was written now."""


@function("journal::checkpoint", On("journal.due"), role="operator", writes=True)
async def checkpoint(request: WriteCheckpoint, journal: Journal) -> WrittenCheckpoint:
    """Append a checkpoint to the journal, if anything is new since the newest one."""

    async def decide(change: Change) -> WrittenCheckpoint:
        facts = await journal.facts(request.tag, change)
        if not is_due(facts, request.results):
            number = facts.before.number or None
            return change.idle(WrittenCheckpoint(written=False, number=number, text=None))
        found = chapter(facts)
        gone = [h.hypothesis_id for h in found.eliminated]
        text = checkpoint_text(found, await journal.last_evidence(request.tag, gone))
        written = {
            "number": found.now.number,
            "results": found.now.results,
            "eliminated": len(gone),
            "proposed": len(found.proposed),
        }
        journal.append(change, request.tag, found.now, text, written)
        return WrittenCheckpoint(written=True, number=found.now.number, text=text)

    return await journal.change(decide, in_turn=request.tag)


class ListCheckpoints(OfSwarm):
    first: int = Field(1, ge=1, le=10**9, description="number of the first one", examples=[1])


class CheckpointView(Response):
    number: int
    text: str
    """Markdown."""


class ListedCheckpoints(Response):
    tag: str
    count: int
    """Number of all checkpoints; for those that do not fit, ask again from the next number."""
    checkpoints: list[CheckpointView]
    """At least one if there is one, at most 256 KiB, oldest first."""


@function("journal::list", role="viewer")
async def list_checkpoints(
    request: ListCheckpoints, journal: Journal, settings: Settings
) -> ListedCheckpoints:
    """The checkpoints of the journal from a number on, oldest first; empty if the tag does not exist."""
    tag = request.tag_in(settings)
    pages = await journal.read(tag, request.first)
    shown = [CheckpointView(number=pages.first + n, text=text) for n, text in enumerate(pages.texts)]
    return ListedCheckpoints(tag=tag, count=pages.count, checkpoints=shown)


@function("journal::read", Http("GET", "/meta_log"), role="viewer", is_public=True)
async def read(request: OfSwarm, journal: Journal, settings: Settings) -> Text:
    """The newest checkpoints of the journal, oldest first, at most 256 KiB; empty while there is none."""
    tag = request.tag_in(settings)
    return Text(content=journal_text(await journal.read(tag), tag))
