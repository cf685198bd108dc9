"""Traces: listed, configured, closed, reopened, audited."""

from __future__ import annotations

import asyncio
from asyncio import gather
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from functions.branches.context import BranchNode
from functions.branches.rules.merging import no_room, single_mode
from functions.kernel.contract import Call, Command, Line, OfTag, Request, Response, function
from functions.kernel.own import check_policy
from functions.kernel.rules.access import check_trace
from functions.trust.rules.audit_tags import forest_violations
from state.errors import Conflict
from state.experiments import PAGE_BYTES, Experiments, Window
from state.ids import OWN_LINE, Id, TraceId
from state.ids import Tag as TagName
from state.policy import Policy, TracePolicy
from state.pool import Pool
from state.records import Experiment, Trace, TraceStatus, stamp, stamped, view_of
from state.settings import Settings
from state.snapshots import Snapshots
from state.tags import Policies, Tags
from state.traces import Traces
from state.wakeups import Wakeups


@dataclass(frozen=True)
class TraceStores:
    tags: Tags
    policies: Policies
    experiments: Experiments
    traces: Traces
    pool: Pool
    wakeups: Wakeups
    settings: Settings


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


class Node(BranchNode):
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
    traces: list[Branch]
    """By number."""
    total_traces: int
    nodes: list[Node]
    """The newest, by number; a parent that is missing here is older."""
    total_nodes: int
    next_cursor: int | None
    drawing: str | None = None
    """A line for each node, newest first, and a column for each trace: ● kept, ○ discarded, × failed."""


@function("trace::list", role="viewer")
async def list_traces(request: ListTraces, stores: TraceStores) -> TraceList:
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
        traces=[
            view_of(Branch, t, created_at=stamp(t.created_at), ended_at=stamped(t.ended_at))
            for t in by_number
            if request.status in (None, t.status)
        ],
        total_traces=total_traces,
        nodes=[node(e, e.experiment_id in tips, e.experiment_id in bases) for e in page.experiments],
        total_nodes=page.total,
        next_cursor=page.following,
        drawing="\n".join(drawn(page.experiments)) if request.draw else None,
    )


def node(e: Experiment, is_tip: bool, is_base: bool) -> Node:
    return view_of(
        Node,
        e,
        id=e.experiment_id,
        parent_id=e.parent_ids[0] if e.parent_ids else None,
        is_tip=is_tip,
        is_base=is_base,
        claimed=e.is_claim,
    )


Count = Annotated[int, Field(ge=1)]
Priority = Annotated[float, Field(ge=-1e6, le=1e6)]


class Configure(Command):
    tag: TagName
    mode: Literal["single", "multi"] | None = Field(
        None, description="one trace or several; a new mode begins a new epoch", examples=["multi"]
    )
    target_traces: Count | None = Field(None, description="traces that grow at once", examples=[3])
    max_parallel: Count | None = Field(None, description="selections that are open at once", examples=[8])
    max_inflight_per_trace: Count | None = Field(
        None, description="selections that are open at once in one trace", examples=[1]
    )
    scheduler: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        None,
        description="round_robin, priority, weighted, softmax, uct, or package.module:Class of a plug-in",
        examples=["uct"],
    )
    scheduler_params: dict[str, float] | None = Field(
        None, max_length=32, description="the scheduler's own values", examples=[{"c": 1.4}]
    )
    lease_ttl_s: Annotated[float, Field(gt=0)] | None = Field(
        None, description="seconds after which a selection expires", examples=[900]
    )
    dead_after_crashes: Count | None = Field(
        None, description="crashes in a row that end a trace", examples=[3]
    )
    stale_after: Count | None = Field(
        None, description="experiments without a new best of the trace that end it", examples=[30]
    )
    priorities: dict[Id, Priority] | None = Field(
        None,
        max_length=100,
        description="by trace id, higher first; used by the scheduler `priority`",
        examples=[{"mar11-t3": 2.0}],
    )
    new_epoch: bool = Field(
        False, description="experiments of selections that are open now are recorded, but cannot be parents"
    )


class Configured(Response):
    tag: str
    version: int
    """Of the tag's policy."""
    epoch: int
    traces: TracePolicy
    priorities: dict[str, float]
    """Of the growing traces."""


@function("trace::configure", role="operator", writes=True)
async def configure(request: Configure, stores: TraceStores) -> Configured:
    """Change the traces part of a tag's policy, and the priorities of traces."""
    named = request.model_dump(exclude={"tag", "request_id", "priorities", "new_epoch"}, exclude_none=True)
    priorities = request.priorities or {}

    async def check(_: Policy, new: Policy) -> None:
        check_policy(new)

    if named or request.new_epoch:
        changes: dict[str, Any] = {"traces": named} if named else {}
        policy, version = await stores.policies.change(
            request.tag, changes, check=check, new_epoch=request.new_epoch, priorities=priorities
        )
    else:
        if priorities:
            await stores.traces.prioritise(request.tag, priorities)
        policy, version = await stores.policies.get(request.tag)
    forest = await stores.traces.forest(request.tag)
    return Configured(
        tag=request.tag,
        version=version,
        epoch=forest.epoch,
        traces=policy.traces,
        priorities={t.trace_id: t.priority for t in forest.growing},
    )


class Close(Command):
    tag: TagName
    trace_id: TraceId
    reason: Line = Field("closed by hand", description="why it grows no further")


class Closed(Response):
    trace_id: str
    status: str
    """The status now; a trace that had ended before keeps its status."""
    reason: str | None


@function("trace::close", role="agent", writes=True)
async def close(request: Close, call: Call, traces: Traces) -> Closed:
    """End a trace and free its slot; its open experiments may still finish. An agent ends its own traces."""

    def check(trace: Trace, policy: Policy, growing: int) -> None:
        check_trace(call.caller, trace)
        if trace.number == OWN_LINE and policy.traces.mode == "single":
            raise single_mode(request.tag)

    trace = await traces.close(request.tag, request.trace_id, request.reason, check)
    return Closed(trace_id=trace.trace_id, status=trace.status, reason=trace.reason)


class Reopen(Command):
    tag: TagName
    trace_id: TraceId


class Reopened(Response):
    trace_id: str
    status: str
    tip: str | None
    base: str | None


@function("trace::reopen", role="agent", writes=True)
async def reopen(request: Reopen, call: Call, traces: Traces) -> Reopened:
    """Let a closed, dead or merged trace grow again from its tip, if the tag has room for one more."""

    def check(trace: Trace, policy: Policy, growing: int) -> None:
        check_trace(call.caller, trace)
        if policy.traces.mode == "single":
            raise single_mode(request.tag)
        if trace.grows:
            return
        if trace.tip is None:
            raise Conflict(
                f"{trace.trace_id} has no finished experiment to extend",
                hint="POST /api/trace/select with intent new_root opens another",
            )
        if growing >= policy.traces.target_traces:
            raise no_room(request.tag, policy.traces.target_traces)

    trace = await traces.reopen(request.tag, request.trace_id, check)
    return Reopened(trace_id=trace.trace_id, status=trace.status, tip=trace.tip, base=trace.base)


LOOKS = 5
"""A violation counts only if all these looks find it: the tag may change while it is read."""


class AuditedTraces(Response):
    ok: bool
    violations: list[str]
    traces: int
    open_selections: int
    experiments: int


@function("trace::audit", role="operator", costly=True)
async def audit(request: OfTag, policies: Policies, snapshots: Snapshots) -> AuditedTraces:
    """Compare each trace's tip, base, counters and leases with the tag's experiments; lab::audit checks all tags.

    Reads the whole tag while it is in use; a violation counts only if every look finds it.
    """
    seen = await _look(request.tag, policies, snapshots)
    for _ in range(LOOKS - 1):
        if seen.ok:
            break
        again = await _look(request.tag, policies, snapshots)
        before = set(seen.violations)
        lasting = [v for v in again.violations if v in before]
        seen = again.model_copy(update={"ok": not lasting, "violations": lasting})
    return seen


async def _look(tag: str, policies: Policies, snapshots: Snapshots) -> AuditedTraces:
    policy, _ = await policies.get(tag)
    found = await snapshots.experiments(tag)
    forest = await snapshots.forest(tag)
    mode = policy.traces.mode
    # In a thread: of a large tag it takes long.
    violations = await asyncio.to_thread(lambda: [*forest_violations(mode, forest, found)])
    return AuditedTraces(
        ok=not violations,
        violations=violations,
        traces=len(forest.traces),
        open_selections=len(forest.open),
        experiments=len(found),
    )


SIGNS = {"keep": "●", "discard": "○", "crash": "×", "timeout": "×"}
OTHER = "·"
"""Open, stopped, lost or invalid."""


def drawn(nodes: Sequence[Experiment]) -> list[str]:
    """Lines for these nodes, which are given oldest first.

    A node stands in its trace's column, on top of the one before it there; whatever else it was made from is named.
    A column that has ended is used again.
    """
    below = _below(nodes)
    columns: list[str | None] = []
    rows: list[tuple[str, Experiment]] = []
    for e in reversed(nodes):
        lane = e.trace_id or ""
        if lane not in columns:
            _take(columns, lane)
        signs = [SIGNS.get(e.status, OTHER) if at == lane else " " if at is None else "│" for at in columns]
        rows.append((" ".join(signs), e))
        if below[e.experiment_id] is None:
            columns[columns.index(lane)] = None
    width = max((len(signs) for signs, _ in rows), default=0)
    return [f"{signs:<{width}}  {_words(e, below[e.experiment_id])}".rstrip() for signs, e in rows]


def _below(nodes: Sequence[Experiment]) -> dict[str, str | None]:
    """For each node the one before it in its column."""
    newest: dict[str, str] = {}
    below: dict[str, str | None] = {}
    for e in nodes:
        lane = e.trace_id or ""
        below[e.experiment_id] = newest.get(lane)
        newest[lane] = e.experiment_id
    return below


def _take(columns: list[str | None], lane: str) -> None:
    if None in columns:
        columns[columns.index(None)] = lane
    else:
        columns.append(lane)


def _words(e: Experiment, below: str | None) -> str:
    value = f"{e.val_bpb:.6f}" if e.val_bpb is not None else ""
    said = f"{e.experiment_id:<9} {e.status:<10} {value:<10} {e.trace_id or '':<8} {' '.join(e.description.split())}"
    if e.parent_ids == ([below] if below else []):
        return said
    made = "joins" if len(e.parent_ids) > 1 else "from" if e.parent_ids else "a new root"
    return f"{said}  [{' '.join((made, ' and '.join(e.parent_ids))).rstrip()}]"
