"""search::suggest_direction tells an agent what to try next."""

from __future__ import annotations

from pydantic import Field

from functions.contract import CATEGORIES, Http, Request, Response, function
from functions.rules.keeps.verdict import near_band
from functions.rules.search.grounds import ground_of
from functions.rules.search.strategy import is_due, next_strategy
from functions.rules.search.suggestions import high_yield, suggest, uncombined_pair, underexplored
from functions.views.budgets import obstacle
from functions.views.strategies import StrategyView, strategy_view
from state.facts import BranchGround, SearchFacts
from state.ids import SelectionId
from state.ids import Tag as TagName
from state.records import Strategy
from state.searches import Searches
from state.tags import Strategies


class SuggestDirection(Request):
    tag: TagName
    selection_id: SelectionId | None = Field(None, description="speak of the branch that was selected")


class CategoryCount(Response):
    total: int
    kept: int


class Suggestion(Response):
    strategy: StrategyView
    total_experiments: int
    category_stats: dict[str, CategoryCount]
    underexplored_categories: list[str]
    high_yield_categories: list[str]
    near_misses_available: int
    near_miss_categories: list[str]
    recent_bpb_trend: list[float]
    suggestions: list[str]
    base_commit_sha: str | None
    """What the next idea is built on: the base of what was selected, else the best's commit, else the tag's base. A
    demotion moves it back."""
    trace_id: str | None = None
    parent_ids: list[str] | None = None
    """Of the selection."""
    paused: bool
    hint: str | None
    """Why a run of this tag would not begin now."""


@function("search::suggest_direction", Http("POST", "/api/search/suggest"), role="agent", writes=True)
async def suggest_direction(
    request: SuggestDirection, searches: Searches, strategies: Strategies
) -> Suggestion:
    """The strategy, what was tried how often, what paid off, and at least one concrete idea."""
    while True:
        facts = await searches.facts(request.tag, request.selection_id, near_band)
        now, finished = facts.strategy, facts.tag.total
        if now.decided_at >= finished or not is_due(now, finished):
            return suggestion(facts, now)
        after = next_strategy(facts.ends, finished, facts.near_count, facts.policy.adapt)
        if (changed := await strategies.replace(request.tag, now, after)) is not None:
            return suggestion(facts, changed)


def suggestion(facts: SearchFacts, strategy: Strategy) -> Suggestion:
    """What to try next under this strategy."""
    tag, stats, ground = facts.tag, facts.categories, ground_of(facts)
    unexplored, yielding = underexplored(stats, CATEGORIES), high_yield(stats)
    chosen = facts.ground.chosen if isinstance(facts.ground, BranchGround) else None
    return Suggestion(
        strategy=strategy_view(strategy),
        total_experiments=tag.total,
        category_stats={name: CategoryCount(total=total, kept=kept) for name, (total, kept) in stats.items()},
        underexplored_categories=unexplored,
        high_yield_categories=yielding,
        near_misses_available=ground.near_count,
        near_miss_categories=sorted({e.category for e in ground.near}),
        recent_bpb_trend=[e.val_bpb for e in ground.recent if e.val_bpb is not None],
        suggestions=suggest(
            strategy.mode,
            unexplored=unexplored,
            yielding=yielding,
            pair=uncombined_pair(ground.near, facts.combined) if strategy.mode == "combine" else None,
            best=ground.base,
            recent=ground.recent,
            merging=ground.merging,
            beside=ground.beside,
        ),
        base_commit_sha=ground.commit_sha,
        trace_id=chosen.trace_id if chosen else None,
        parent_ids=chosen.parent_ids if chosen else None,
        paused=tag.paused_at is not None,
        hint=obstacle(tag),
    )
