"""Selections: what the next experiment of a tag is made from."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from pydantic import Field, model_validator

from functions.branches.rules.merging import busy
from functions.branches.rules.schedulers import scheduler_named
from functions.branches.rules.select import decide, needed
from functions.branches.traces import TraceStores
from functions.experiments.views.hints import obstacle
from functions.kernel.contract import Call, Command, Every, Line, Response, function
from functions.kernel.rules.access import check_own
from state.errors import Conflict
from state.ids import AgentName, ExperimentId, RequestKey, SelectionId, TraceId
from state.ids import Tag as TagName
from state.records import Selection, SelectionKind, Tag, stamp, view_of
from state.refusals import over
from state.selecting import Intent, SelectionWait, Wish
from state.traces import Traces
from state.wakeups import woken_within

# -- Shared by select and merge: try until there is a selection or the wait is over.

LOOK_AGAIN_S = 2.0
"""Seconds between two looks without a wake-up, which may be lost with its connection."""
FREEING = (
    *("selection.committed", "selection.released", "selection.expired"),
    *("trace.opened", "trace.ended", "trace.reopened", "tag.resumed"),
)
"""Events that may free a slot."""


class Selected(Response):
    """A selection, or the reason to wait."""

    status: Literal["selected", "wait"]
    selection_id: str | None = None
    kind: SelectionKind | None = None
    trace_id: str | None = None
    parent_ids: list[str] | None = None
    local_selection: list[int] | None = None
    """The parents' numbers in the tag; empty is a new root."""
    base_experiment_id: str | None = None
    base_commit_sha: str | None = None
    """The code to check out."""
    combines: list[str] | None = None
    """For a merge: the kept nodes or near misses whose changes to combine."""
    sources: list[str] | None = None
    """For a merge: the traces that end if it is kept."""
    select_seq: int | None = None
    epoch: int | None = None
    lease_expires_at: str | None = None
    """Register an experiment with it, or renew it, before this time."""
    scheduler: str | None = None
    scores: dict[str, float] | None = None
    reason: str
    """Why this selection; or why there is none: no_slot, all_busy, paused, budget."""
    retry_after: float | None = None
    hint: str
    """What to do with it, or until there is one."""
    context: dict[str, Any] | None = None


async def selected(wish: Wish, wait_s: float, request: RequestKey | None, stores: TraceStores) -> Selected:
    """A selection; waits `wait_s` seconds for a free slot. Raises Conflict: it cannot be, even later (`code`)."""
    time = asyncio.get_running_loop().time
    deadline, next_look = time() + wait_s, 0.0
    with stores.wakeups.types(wish.tag, *FREEING) as woken:
        while True:
            async with stores.traces.deciding(wish.tag):
                found, tag = await _try(wish, request, stores)
            if isinstance(found, Selection):
                return shown(found, tag)
            if time() >= next_look and found.reason in ("no_slot", "all_busy"):
                next_look = time() + LOOK_AGAIN_S
                if wish.tag in await _forgotten_tags(stores):
                    continue
            left = deadline - time()
            if left <= 0:
                if found.reason == "all_busy" and wish.named_trace is not None:
                    raise busy(wish.named_trace, found.retry_after)
                return waiting(found, tag)
            await woken_within(woken, min(left, LOOK_AGAIN_S))


async def _try(
    wish: Wish, request: RequestKey | None, stores: TraceStores
) -> tuple[Selection | SelectionWait, Tag]:
    while True:
        facts = await stores.traces.facts(wish, request)
        if facts.first is not None:
            return facts.first, facts.tag
        if facts.free_at is not None and facts.free_at <= facts.now:
            await stores.traces.sweep([wish.tag])
            continue
        needs = needed(wish, facts)
        facts = await stores.traces.more(facts, needs)
        scheduler = scheduler_named(needs.scheduler) if needs.scheduler else None
        decision = decide(wish, facts, scheduler, stores.settings.stale_s)
        if isinstance(decision, SelectionWait):
            return decision, facts.tag
        if (made := await stores.traces.select(decision, request)) is not None:
            return made, facts.tag


async def _forgotten_tags(stores: TraceStores) -> set[str]:
    """Tags whose slots were freed because their agents are gone; needed if no clock runs the sweeps."""
    patience_s = stores.settings.stale_s
    if await stores.pool.begin_sweep(patience_s / 2 + stores.settings.sweep_s, patience_s):
        return set()
    closed = await stores.experiments.close_forgotten()
    return {name.rpartition("-")[0] for name in closed}


def shown(found: Selection, tag: Tag) -> Selected:
    commit = found.base_commit_sha or tag.base_commit
    return view_of(
        Selected,
        found,
        status="selected",
        base_commit_sha=commit,
        combines=(found.combines or found.parent_ids) if found.kind == "merge" else None,
        sources=sorted(found.sources) or None,
        lease_expires_at=stamp(found.lease_expires_at),
        hint=f"Check out {commit or 'the base commit'}, change it, and register or submit with"
        f" selection_id {found.selection_id} before the lease ends.",
    )


def waiting(found: SelectionWait, tag: Tag) -> Selected:
    hints = {
        "no_slot": "Every slot is taken: ask again, and form the idea then, since the context will have changed.",
        "all_busy": "Every trace is being extended: ask again when one of them has a result.",
    }
    hint = hints.get(found.reason) or obstacle(tag) or "The tag has no room for a run now: ask again."
    return Selected(status="wait", reason=found.reason, retry_after=found.retry_after, hint=hint)


class Select(Command):
    tag: TagName
    agent: AgentName | None = None
    intent: Intent = Field("auto", description="auto opens traces up to target_traces, then extends one")
    trace_id: TraceId | None = Field(None, description="extend this trace")
    parent_ids: list[ExperimentId] = Field(
        default_factory=list,
        max_length=16,
        description="build on these experiments; several: a merge",
        examples=[["mar11-41"]],
    )
    include_context: bool = Field(False, description="also answer trace::context")
    wait: float = Field(0, ge=0, le=50, description="seconds to wait for a slot")

    @model_validator(mode="after")
    def _one_wish(self) -> Select:
        if self.trace_id is not None and (self.parent_ids or self.intent not in ("auto", "extend")):
            raise ValueError("trace_id extends that trace: omit parent_ids, and let intent be auto or extend")
        if self.parent_ids and self.intent == "new_root":
            raise ValueError("a new root has no parents: omit parent_ids")
        if len(set(self.parent_ids)) > 1 and self.intent not in ("auto", "merge"):
            raise ValueError("several parent_ids are a merge: let intent be auto or merge")
        return self


@function("trace::select", role="agent", writes=True, keeps_answer=False, held_for="wait")
async def select(request: Select, call: Call, stores: TraceStores) -> Selected:
    """Lease the trace and parents of one experiment; if there is no free slot, the status is `wait`."""
    parents = list(dict.fromkeys(request.parent_ids))
    wish = Wish(
        tag=request.tag,
        agent=request.agent,
        owner=call.caller.owner,
        intent="merge" if len(parents) > 1 else request.intent,
        trace_id=request.trace_id,
        parent_ids=parents,
        selector="nodes" if parents else "best_base",
    )
    found = await selected(wish, request.wait, call.request_key("trace::select", request), stores)
    if found.selection_id is None or not request.include_context:
        return found
    told = await call.invoke("trace::context", {"tag": request.tag, "selection_id": found.selection_id})
    return found.model_copy(update={"context": told})


class Merge(Command):
    tag: TagName
    agent: AgentName | None = None
    into: TraceId | None = Field(None, description="the trace to extend; default: the one with the best base")
    sources: list[TraceId] = Field(
        default_factory=list,
        max_length=16,
        description="the traces to merge",
        examples=[["mar11-t1", "mar11-t3"]],
    )
    selector: Literal["explicit", "best_base", "near_miss"] | None = Field(
        None,
        description="how sources are found; default: explicit if sources are named, else best_base",
        examples=["best_base"],
    )
    wait: float = Field(0, ge=0, le=50, description="seconds to wait for a slot")

    @model_validator(mode="after")
    def _sources_are_named_or_found(self) -> Merge:
        if self.sources and self.selector not in (None, "explicit"):
            raise ValueError(f"the selector {self.selector} finds the sources: omit them")
        if self.selector == "explicit" and not self.sources:
            raise ValueError("the selector explicit needs sources")
        return self


@function("trace::merge", role="agent", writes=True, keeps_answer=False, held_for="wait")
async def merge(request: Merge, call: Call, stores: TraceStores) -> Selected:
    """Select several parents: the bases of two traces, or two near misses; if it is kept, the other traces end."""
    sources = [*([request.into] if request.into and request.sources else []), *request.sources]
    wish = Wish(
        tag=request.tag,
        agent=request.agent,
        owner=call.caller.owner,
        intent="merge",
        selector=request.selector or ("explicit" if sources else "best_base"),
        sources=sources,
        into=request.into,
    )
    return await selected(wish, request.wait, call.request_key("trace::merge", request), stores)


class Renew(Command):
    selection_id: SelectionId


class Renewed(Response):
    selection_id: str
    status: str
    lease_expires_at: str
    held_by: str | None = None
    """The experiment made from it: while that is open, no renewal is needed."""


@function("trace::renew", role="agent", writes=True, keeps_answer=False)
async def renew(request: Renew, call: Call, traces: Traces) -> Renewed:
    """Prolong a selection's lease by its whole length, while the agent works on its idea."""
    found = await traces.selection(request.selection_id)
    check_own(call.caller, found.owner, found.selection_id)
    renewed = await traces.renew(found)
    if renewed is None:
        raise over(await traces.selection(request.selection_id))
    return view_of(
        Renewed, renewed, lease_expires_at=stamp(renewed.lease_expires_at), held_by=renewed.experiment_id
    )


class ReleaseSelection(Command):
    selection_id: SelectionId
    reason: Line = Field("its agent had no idea for it", description="why it is given back")


class ReleasedSelection(Response):
    selection_id: str
    status: str


@function("trace::release", role="agent", writes=True, keeps_answer=False)
async def release(request: ReleaseSelection, call: Call, traces: Traces) -> ReleasedSelection:
    """Give a selection back unused; its trace is free at once."""
    found = await traces.selection(request.selection_id)
    check_own(call.caller, found.owner, found.selection_id)
    after = await traces.release(found, request.reason)
    if after.status == "open":
        raise Conflict(
            f"{after.experiment_id} was registered with {after.selection_id}",
            hint=f"end {after.experiment_id} with POST /api/experiment/stop: its selection ends with it",
            fields={"code": "selection_registered", "experiment_id": after.experiment_id},
        )
    if after.status == "committed":
        raise over(after)
    return ReleasedSelection(selection_id=after.selection_id, status=after.status)


class SweptSelections(Response):
    expired: list[str]
    """Ids of selections."""


@function("trace::sweep", Every("sweep_s"), role="operator", writes=True)
async def sweep(request: Command, traces: Traces) -> SweptSelections:
    """Expire selections whose lease ended before an experiment was registered; trace::select does so for its tag."""
    return SweptSelections(expired=await traces.sweep())
