"""report::brief is all that an agent with an empty context needs to go on."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from functions.contract import Request, Response, function
from functions.rules.keeps.verdict import near_band
from functions.rules.search.suggestions import short
from functions.views.budgets import Budget, budget_view, is_limited, obstacle
from functions.views.hints import open_step
from functions.views.sketches import selection_view, sketch_view
from state.ids import AgentName
from state.ids import Tag as TagName
from state.records import Sketch
from state.reports import Reports

OPEN_SHOWN = 10


class ReadBrief(Request):
    tag: TagName
    agent: AgentName | None = Field(None, description="only what this agent, or no named one, has open")


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
async def brief(request: ReadBrief, reports: Reports) -> Brief:
    """Open experiments, what to build on, the last results, strategy and near misses; at most 2,000 tokens."""
    facts = await reports.brief(request.tag, near_band)
    tag, best, strategy = facts.tag, facts.best, facts.strategy
    mine = [e for e in facts.still_open if request.agent is None or e.agent in (None, request.agent)]
    unused = [s for s in facts.unused if request.agent in (None, s.agent)]
    return Brief(
        tag=tag.name,
        branch=short(tag.branch, 100),
        metric=tag.metric,
        direction=tag.direction,
        base_commit_sha=best.commit_sha if best else tag.base_commit,
        best={"experiment_id": best.experiment_id, "val_bpb": best.val_bpb} if best else None,
        total_experiments=tag.total,
        kept_experiments=tag.kept,
        open_experiments=[sketch_view(e) for e in mine[:OPEN_SHOWN]],
        open_selections=[selection_view(s) for s in unused[:OPEN_SHOWN]],
        last_results=[sketch_view(e) for e in facts.results],
        strategy={
            "mode": strategy.mode,
            "temperature": strategy.temperature,
            "reason": short(strategy.reason, 200),
        },
        near_misses=[sketch_view(e) for e in facts.near],
        paused=tag.paused_at is not None,
        budget=budget_view(tag) if is_limited(tag) else None,
        next=_next(mine[0] if mine else None, obstacle(tag)),
    )


def _next(mine: Sketch | None, why_not: str | None) -> str:
    if mine is not None and mine.status != "registered":
        return open_step(mine.experiment_id, mine.status, None, why_not, mine.last_progress)
    step = (
        open_step(mine.experiment_id, mine.status, None)
        if mine is not None
        else "Ask for a direction: POST /api/search/suggest."
    )
    return f"{why_not} {step}" if why_not else step
