"""report::brief tells an agent with an empty context all that it needs to go on."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from functions.contract import Request, Response, function
from functions.rules.beliefs.theory import least_decided
from functions.rules.keeps.noise import near_scores
from functions.rules.keeps.verdict import should_abort
from functions.rules.search.suggestions import short
from functions.views.budgets import Budget, budget_view, is_limited, obstacle
from functions.views.experiments import selection_view, sketch_view
from functions.views.hints import open_step, standstill, tag_step
from functions.views.hypotheses import Belief, belief_of
from state.ids import AgentName
from state.ids import Tag as TagName
from state.records import Best, Score, Selection, Sketch, Trust
from state.reports import BriefFacts, Reports
from state.settings import Settings

OPEN_SHOWN = 10
BELIEFS_SHOWN = 5


class ReadBrief(Request):
    tag: TagName
    agent: AgentName | None = Field(None, description="only what this agent, or no named one, has open")


class Brief(Response):
    tag: str
    branch: str
    metric: str
    direction: str
    score: Score
    """Source of the lab's values: train.py prints them, or a trusted evaluator measures them afterwards."""
    base_commit_sha: str | None
    """Commit for the next idea: the best's, else the tag's base."""
    best: dict[str, Any] | None
    total_experiments: int
    kept_experiments: int
    open_experiments: list[dict[str, Any]]
    open_selections: list[dict[str, Any]]
    """Selections without an experiment: go on with them, or release them."""
    last_results: list[dict[str, Any]]
    strategy: dict[str, Any]
    strategy_mode: str
    """`strategy.mode` once more."""
    near_misses: list[dict[str, Any]]
    beliefs: list[Belief]
    """Hypotheses under test, the least decided first. An experiment names the one that it tests as hypothesis_id."""
    paused: bool
    budget: Budget | None
    """None: the tag has no limit."""
    trace_mode: str
    """`single`, or `multi`: then every experiment is made from what trace::select answers."""
    consecutive_crashes: int
    should_abort: bool
    """So many crashes that something is broken for all runs: find the cause before the next run."""
    next: str
    """What to do now, in a sentence."""


@function("report::brief", role="agent")
async def brief(request: ReadBrief, reports: Reports, settings: Settings) -> Brief:
    """Open experiments, what to build on, the last results, strategy and near misses; at most 2,000 tokens."""
    facts = await reports.brief(request.tag, near_scores)
    tag, best, strategy = facts.tag, facts.best, facts.strategy
    mine = [e for e in facts.still_open if request.agent is None or e.agent in (None, request.agent)]
    unused = [s for s in facts.unused if request.agent in (None, s.agent)]
    return Brief(
        tag=tag.name,
        branch=short(tag.branch, 100),
        metric=tag.metric,
        direction=tag.direction,
        score=tag.score,
        base_commit_sha=best.commit_sha if best else tag.base_commit,
        best=_best(best, facts.best_trust) if best else None,
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
        strategy_mode=strategy.mode,
        near_misses=[sketch_view(e) for e in facts.near],
        beliefs=[belief_of(h) for h in least_decided(facts.hypotheses)[:BELIEFS_SHOWN]],
        paused=tag.paused_at is not None,
        budget=budget_view(tag) if is_limited(tag) else None,
        trace_mode=facts.policy.traces.mode,
        consecutive_crashes=facts.crashes_in_a_row,
        should_abort=should_abort(facts.crashes_in_a_row, facts.policy.crash_limit),
        next=_next(facts, mine[0] if mine else None, unused[0] if unused else None, settings.stale_s),
    )


def _best(best: Best, trust: Trust | None) -> dict[str, Any]:
    return {
        "experiment_id": best.experiment_id,
        "val_bpb": best.val_bpb,
        "commit": best.commit_sha,
        "trust": trust,
    }


def _next(facts: BriefFacts, mine: Sketch | None, unused: Selection | None, stale_s: float) -> str:
    why_not = obstacle(facts.tag)
    if mine is not None and mine.status != "registered":
        why_not = why_not or standstill(facts.slots, facts.now, stale_s)
        return open_step(mine.experiment_id, mine.status, None, why_not, mine.last_progress)
    if mine is not None:
        step = open_step(mine.experiment_id, mine.status, None)
    elif unused is not None and not should_abort(facts.crashes_in_a_row, facts.policy.crash_limit):
        step = f"Go on with {unused.selection_id}, or give it back: POST /api/trace/release."
    else:
        is_empty = facts.best is None and facts.tag.total == 0
        step = tag_step(facts.tag, facts.policy, facts.crashes_in_a_row, is_empty=is_empty)
    return f"{why_not} {step}" if why_not else step
