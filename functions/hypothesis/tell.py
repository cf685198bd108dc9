"""hypothesis::tell asks a language model for a summary of a tag's hypotheses."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from functions.contract import Call, Command, On, Response, function
from functions.formats.authored import GraphSummary
from functions.hypothesis._stores import Telling
from functions.lanes import Author, Commission
from functions.rules.beliefs.theory import status_digest
from functions.views.model_texts import graph_text
from state.graph_summaries import StoredGraphSummary
from state.ids import Tag as TagName

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
