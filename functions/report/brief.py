"""report::brief is all that an agent with an empty context needs to go on."""

from __future__ import annotations

from typing import Any

from functions.contract import Request, Response, function
from functions.rules.keeps.verdict import near_band
from functions.rules.search.suggestions import short
from functions.views.budgets import Budget, budget_view, is_limited, obstacle
from functions.views.hints import next_step
from state.experiments import Experiments
from state.ids import Id
from state.ids import Tag as TagName
from state.policies import Policies
from state.records import Experiment, Selection, Status, stamp
from state.tags import Strategies, Tags
from state.traces import Traces

OPEN_STATUSES: tuple[Status, ...] = ("running", "leased", "queued", "registered")
RESULTS = 10
OPEN_SHOWN = 10
NEAR_SHOWN = 5


class Ask(Request):
    tag: TagName
    agent: Id | None = None


class Brief(Response):
    tag: str
    branch: str
    metric: str
    direction: str
    base_commit_sha: str | None
    """What the next idea is built on: the best's commit, else the tag's base."""
    best: dict[str, Any] | None
    total_experiments: int
    kept_experiments: int
    open_experiments: list[dict[str, Any]]
    open_selections: list[dict[str, Any]]
    """What was selected and not yet registered: go on with it, or release it."""
    last_results: list[dict[str, Any]]
    strategy: dict[str, Any]
    near_misses: list[dict[str, Any]]
    paused: bool
    budget: Budget | None
    """None where the tag has no limit."""
    next: str


@function("report::brief", role="agent")
async def brief(
    request: Ask,
    tags: Tags,
    experiments: Experiments,
    strategies: Strategies,
    policies: Policies,
    traces: Traces,
) -> Brief:
    """Open experiments, what to build on, the last results, strategy and near misses; at most 2,000 tokens."""
    tag = await tags.get(request.tag)
    best = await experiments.best(request.tag)
    strategy = await strategies.get(request.tag)
    near: list[Experiment] = []
    if best is not None:
        policy, _ = await policies.get(request.tag)
        band = near_band(best.val_bpb, tag.direction, policy.near_miss_margin)
        near, _ = await experiments.near_misses(request.tag, *band, limit=NEAR_SHOWN)
    still_open: list[Experiment] = []
    for status in OPEN_STATUSES:
        found = await experiments.by_number(request.tag, status, 50)
        still_open += [e for e in found if e.retest_of is None]
    if request.agent is not None:
        still_open = [e for e in still_open if e.agent in (None, request.agent)]
    unused = await traces.unused(request.tag, OPEN_SHOWN, request.agent)
    mine = still_open[0] if still_open else None
    return Brief(
        tag=tag.name,
        branch=short(tag.branch, 100),
        metric=tag.metric,
        direction=tag.direction,
        base_commit_sha=best.commit_sha if best else tag.base_commit,
        best={"experiment_id": best.experiment_id, "val_bpb": best.val_bpb} if best else None,
        total_experiments=tag.total,
        kept_experiments=tag.kept,
        open_experiments=[line(e) for e in still_open[:OPEN_SHOWN]],
        open_selections=[_chosen(s) for s in unused],
        last_results=[line(e) for e in await experiments.finished(request.tag, RESULTS)],
        strategy={
            "mode": strategy.mode,
            "temperature": strategy.temperature,
            "reason": short(strategy.reason, 200),
        },
        near_misses=[line(e) for e in near],
        paused=tag.paused_at is not None,
        budget=budget_view(tag) if is_limited(tag) else None,
        next=_next(mine, obstacle(tag)),
    )


def _next(mine: Experiment | None, why_not: str | None) -> str:
    if mine is not None and mine.status != "registered":
        return next_step(mine, None, why_not)
    step = next_step(mine, None) if mine else "Ask for a direction: POST /api/search/suggest."
    return f"{why_not} {step}" if why_not else step


def _chosen(s: Selection) -> dict[str, Any]:
    return {
        "selection_id": s.selection_id,
        "agent": s.agent,
        "kind": s.kind,
        "trace_id": s.trace_id,
        "parent_ids": s.parent_ids,
        "base_commit_sha": s.base_commit_sha,
        "lease_expires_at": stamp(s.lease_expires_at),
    }


def line(e: Experiment) -> dict[str, Any]:
    """One experiment in a few words."""
    return {
        "experiment_id": e.experiment_id,
        "status": e.status,
        "agent": e.agent,
        "val_bpb": e.val_bpb,
        "category": e.category,
        "description": short(e.description, 60),
        "commit_sha": e.commit_sha[:12],
    }
