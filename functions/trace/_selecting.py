"""Shared by select and merge: try until there is a selection or the wait is over."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from functions.contract import Response
from functions.rules.branches.refusals import busy
from functions.rules.branches.select import decide, needed
from functions.trace._stores import Stores
from functions.views.budgets import obstacle
from state.digests import RequestKey
from state.records import Selection, SelectionKind, Tag, stamp
from state.selecting import SelectionWait, Wish
from state.wakeups import woken_within

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


AS_STORED = (Selected.model_fields.keys() & Selection.model_fields.keys()) - {
    *("status", "base_commit_sha", "combines", "sources", "lease_expires_at")
}
"""Fields that are answered as the selection has them."""


async def selected(wish: Wish, wait_s: float, request: RequestKey | None, stores: Stores) -> Selected:
    """A selection. Without one, tries again for `wait_s` seconds after each event that may free a slot.

    Raises:
        Conflict: the wish cannot be fulfilled, even later; `code` says why.
    """
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
    wish: Wish, request: RequestKey | None, stores: Stores
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
        scheduler = await stores.schedulers.named(needs.scheduler) if needs.scheduler else None
        decision = decide(wish, facts, scheduler, stores.settings.stale_s)
        if isinstance(decision, SelectionWait):
            return decision, facts.tag
        if (made := await stores.traces.select(decision, request)) is not None:
            return made, facts.tag


async def _forgotten_tags(stores: Stores) -> set[str]:
    """Tags whose slots were freed because their agents are gone; needed if no clock runs the sweeps."""
    patience_s = stores.settings.stale_s
    if await stores.pool.begin_sweep(patience_s / 2 + stores.settings.sweep_s, patience_s):
        return set()
    closed = await stores.experiments.close_forgotten()
    return {name.rpartition("-")[0] for name in closed}


def shown(found: Selection, tag: Tag) -> Selected:
    """A selection as an answer."""
    commit = found.base_commit_sha or tag.base_commit
    return Selected(
        **{name: getattr(found, name) for name in AS_STORED},
        status="selected",
        base_commit_sha=commit,
        combines=(found.combines or found.parent_ids) if found.kind == "merge" else None,
        sources=sorted(found.sources) or None,
        lease_expires_at=stamp(found.lease_expires_at),
        hint=f"Check out {commit or 'the base commit'}, change it, and register or submit with"
        f" selection_id {found.selection_id} before the lease ends.",
    )


def waiting(found: SelectionWait, tag: Tag) -> Selected:
    """The reason of a wait as an answer."""
    hints = {
        "no_slot": "Every slot is taken: ask again, and form the idea then, since the context will have changed.",
        "all_busy": "Every trace is being extended: ask again when one of them has a result.",
    }
    hint = hints.get(found.reason) or obstacle(tag) or "The tag has no room for a run now: ask again."
    return Selected(status="wait", reason=found.reason, retry_after=found.retry_after, hint=hint)
