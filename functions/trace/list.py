"""trace::list shows a tag's traces and the graph of its experiments."""

from __future__ import annotations

import builtins
from asyncio import gather
from typing import Annotated

from pydantic import Field

from functions.contract import Request, Response, function
from functions.trace._stores import Stores
from functions.views.drawing import drawn
from state.experiments import PAGE_BYTES, Window
from state.ids import Tag as TagName
from state.records import Experiment, Trace, TraceStatus, stamp


class ListTraces(Request):
    tag: TagName
    status: TraceStatus | None = Field(None, description="only traces of this status", examples=["live"])
    limit: int = Field(200, ge=1, le=1000, description="newest nodes of the graph, and newest traces")
    draw: bool = Field(False, description="also answer the graph as text")
    cursor: Annotated[int, Field(ge=0)] | None = Field(
        None, description="next_cursor of the page before", examples=[40]
    )


class Branch(Response):
    trace_id: str
    number: int
    status: TraceStatus
    kind: str
    root: str | None
    origin: str | None
    """The node at which a branch began."""
    tip: str | None
    base: str | None
    """Its best keep."""
    base_commit_sha: str | None
    length: int
    kept: int
    in_flight: int
    selections: int
    best_score: float | None
    """Lower is better, for metrics of both directions."""
    priority: float
    created_at: str
    ended_at: str | None
    reason: str | None
    merged_into: str | None


class Node(Response):
    experiment_id: str
    id: str
    """`experiment_id` once more."""
    number: int
    parent_ids: builtins.list[str]
    parent_id: str | None
    """The first of `parent_ids`."""
    trace_id: str | None
    status: str
    val_bpb: float | None
    claimed: bool
    """Only its agent says so: the lab has not run its code."""
    category: str
    description: str
    agent: str | None
    forked: bool
    """A leaf beside its branch."""
    is_tip: bool
    is_base: bool


class TraceList(Response):
    tag: str
    mode: str
    epoch: int
    select_seq: int
    open_selections: int
    traces: builtins.list[Branch]
    """By number."""
    total_traces: int
    nodes: builtins.list[Node]
    """The newest, by number; a parent that is missing here is older."""
    total_nodes: int
    next_cursor: int | None
    drawing: str | None = None
    """A line for each node, newest first, and a column for each trace: ● kept, ○ discarded, × failed."""


@function("trace::list", role="viewer")
async def list(request: ListTraces, stores: Stores) -> TraceList:
    """A tag's traces with their tips and bases, and its newest experiments as a graph: parents, status, value."""
    tag = request.tag
    _, (policy, _), forest, still_open, (newest, total_traces), page = await gather(
        stores.tags.get(tag),
        stores.policies.get(tag),
        stores.traces.forest(tag),
        stores.traces.open_selections(tag),
        stores.traces.page(tag, request.limit),
        stores.experiments.page(Window(tag, request.limit, cursor=request.cursor, most_bytes=PAGE_BYTES)),
    )
    by_number = sorted({t.trace_id: t for t in (*forest.growing, *newest)}.values(), key=lambda t: t.number)
    tips, bases = {t.tip for t in by_number}, {t.base for t in by_number}
    return TraceList(
        tag=tag,
        mode=policy.traces.mode,
        epoch=forest.epoch,
        select_seq=forest.select_seq,
        open_selections=len(still_open),
        traces=[branch(t) for t in by_number if request.status in (None, t.status)],
        total_traces=total_traces,
        nodes=[node(e, e.experiment_id in tips, e.experiment_id in bases) for e in page.experiments],
        total_nodes=page.total,
        next_cursor=page.following,
        drawing="\n".join(drawn(page.experiments)) if request.draw else None,
    )


def branch(trace: Trace) -> Branch:
    """A trace as an answer."""
    return Branch(
        created_at=stamp(trace.created_at),
        ended_at=stamp(trace.ended_at) if trace.ended_at is not None else None,
        **trace.model_dump(include=set(Branch.model_fields) - {"created_at", "ended_at"}),
    )


def node(e: Experiment, is_tip: bool, is_base: bool) -> Node:
    return Node(
        id=e.experiment_id,
        parent_id=e.parent_ids[0] if e.parent_ids else None,
        is_tip=is_tip,
        is_base=is_base,
        claimed=e.is_claim,
        **e.model_dump(include=set(Node.model_fields) - {"claimed"}),
    )
