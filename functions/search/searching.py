"""A tag's policy, its strategy, and what an agent could try next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from functions.experiments.rules.opening import owes_baseline, waits_for_baseline
from functions.experiments.rules.verdict import should_abort
from functions.experiments.views.hints import SELECT, abort_step, obstacle
from functions.kernel.contract import (
    CATEGORIES,
    Command,
    Http,
    Line,
    OfTag,
    On,
    Request,
    Response,
    TagCommand,
    function,
)
from functions.kernel.own import check_policy
from functions.runs.rules.ticks import check_source
from functions.search.rules.strategy import (
    StrategyView,
    best_category,
    is_due,
    kept_category,
    next_strategy,
    strategy_view,
)
from functions.search.rules.suggestions import (
    Least,
    barren,
    ground_of,
    high_yield,
    least_tried_of,
    suggest,
    uncombined_pair,
    underexplored,
)
from functions.swarm.rules.results import check_comparison
from functions.trust.rules.noise import near_scores
from state.experiments import Experiments
from state.facts import SearchFacts
from state.ids import SelectionId, Tag
from state.policy import Policy
from state.records import Mode, Selection, Sketch, Strategy
from state.searches import Searches
from state.tags import Policies, Strategies, StrategyFacts, Tags


class CurrentPolicy(Response):
    tag: str
    version: int
    policy: Policy


@function("search::policy", role="viewer")
async def policy(request: OfTag, policies: Policies) -> CurrentPolicy:
    """A tag's research policy with its version."""
    found, version = await policies.get(request.tag)
    return CurrentPolicy(tag=request.tag, version=version, policy=found)


class SetPolicy(Command):
    tag: Tag
    policy: dict[str, Any] = Field(
        description="the values to change, nested or with dotted names",
        examples=[{"near_miss_margin": 0.003, "traces.mode": "multi"}],
    )
    expected_version: int | None = Field(
        None, ge=1, description="refuse if the policy is at another version", examples=[3]
    )


class Changed(Response):
    tag: str
    version: int
    policy: Policy


@function("search::set_policy", role="operator", writes=True)
async def set_policy(request: SetPolicy, policies: Policies, tags: Tags) -> Changed:
    """Change some values; each change is a new version, and decisions remember theirs."""

    async def check(before: Policy, new: Policy) -> None:
        check_policy(new)
        if before.stopping.tick_source != new.stopping.tick_source:
            check_source(new, (await tags.get(request.tag)).direction)
        if before.compare_by != new.compare_by:
            check_comparison(before, new, await tags.get(request.tag))

    changed, version = await policies.change(
        request.tag, request.policy, request.expected_version, check=check
    )
    return Changed(tag=request.tag, version=version, policy=changed)


@function("search::strategy", role="viewer")
async def strategy(request: OfTag, strategies: Strategies) -> StrategyView:
    """The current mode with its parameters and the reason for it."""
    return strategy_view(await strategies.get(request.tag))


class SetStrategy(Command):
    tag: Tag
    mode: Mode = Field(description="how the search goes on")
    reason: Line = Field(description="why, for the agents", examples=["three runs in a row were duplicates"])
    explore_ratio: float = Field(0.7, ge=0, le=1, description="share of ideas that should be new ground")
    temperature: float = Field(1.0, ge=0, le=10, description="how bold ideas should be")
    pin_for: int = Field(
        5, ge=0, le=100_000, description="experiments that finish before adapt may change it", examples=[5]
    )


@function("search::set_strategy", role=("local", "operator"), writes=True)
async def set_strategy(request: SetStrategy, strategies: Strategies) -> StrategyView:
    """Set the mode by hand; it stands for the next `pin_for` finished experiments."""

    async def chosen(facts: StrategyFacts) -> Strategy:
        return Strategy(
            mode=request.mode,
            explore_ratio=request.explore_ratio,
            temperature=request.temperature,
            reason=request.reason,
            pinned_until=facts.tag.finishes + request.pin_for if request.pin_for else 0,
            decided_at=facts.tag.finishes,
        )

    return strategy_view((await strategies.replace(request.tag, chosen))[1])


class Adapted(StrategyView):
    changed: bool
    """Whether the mode is another one now."""


@function("search::adapt", On("experiment.finished", debounce="tag"), role="agent", writes=True)
async def adapt(request: TagCommand, strategies: Strategies, experiments: Experiments) -> Adapted:
    """Choose explore, exploit, combine or ablation from the last finished experiments; all who ask agree."""

    async def due(facts: StrategyFacts) -> Strategy | None:
        if not is_due(facts.strategy, facts.tag.finishes):
            return None
        band, policy = None, facts.policy
        if facts.best is not None:
            band = near_scores(facts.best.val_bpb, facts.tag.direction, policy, facts.noise)
        recent, near = await experiments.ends(request.tag, policy.adapt.ends_read, band)
        return next_strategy(recent, facts.tag.finishes, near, policy.adapt)

    before, now = await strategies.replace(request.tag, due)
    return Adapted(**strategy_view(now).model_dump(), changed=now.mode != before.mode)


class SuggestDirection(Request):
    tag: Tag
    selection_id: SelectionId | None = Field(None, description="speak of the branch that was selected")


class CategoryCount(Response):
    total: int
    kept: int


class Suggestion(Response):
    FOR_AGENTS = (
        *("strategy_mode", "suggestions", "base_commit_sha", "trace_id", "parent_ids", "trace_mode"),
        *("should_abort", "next", "hint"),
    )

    strategy: StrategyView
    strategy_mode: str
    """`strategy.mode` once more."""
    total_experiments: int
    category_stats: dict[str, CategoryCount]
    underexplored_categories: list[str]
    high_yield_categories: list[str]
    barren_categories: list[str]
    """Tried 10 times or more, and nothing was kept."""
    near_misses_available: int
    near_miss_categories: list[str]
    recent_bpb_trend: list[float]
    suggestions: list[str]
    base_commit_sha: str | None
    """Parent of the next idea: the selection's base, else the best's commit, else the tag's base. A
    demotion moves it back."""
    trace_id: str | None = None
    parent_ids: list[str] | None = None
    """Of the selection."""
    trace_mode: str
    """`single`, or `multi`: then every experiment is made from what trace::select answers."""
    consecutive_crashes: int
    should_abort: bool
    """So many that something is broken for all: find the cause before the next run."""
    next: str
    """What to do now, in a sentence."""
    paused: bool
    hint: str | None
    """Why a run of this tag would not begin now."""


@function("search::suggest_direction", Http("POST", "/api/search/suggest"), role="agent", writes=True)
async def suggest_direction(request: SuggestDirection, searches: Searches) -> Suggestion:
    """The strategy, what was tried how often, what paid off, and at least one concrete idea."""
    return suggestion(
        await searches.facts(request.tag, request.selection_id, near_scores, least_tried, adapted)
    )


def adapted(facts: SearchFacts) -> Strategy | None:
    now, finished = facts.strategy, facts.tag.finishes
    if now.decided_at >= finished or not is_due(now, finished):
        return None
    return next_strategy(facts.ends, finished, facts.near_count, facts.policy.adapt)


def suggestion(facts: SearchFacts) -> Suggestion:
    strategy, tag, stats, ground = facts.strategy, facts.tag, facts.categories, ground_of(facts)
    unexplored, yielding, empty = underexplored(stats, CATEGORIES), high_yield(stats), barren(stats)
    aborts = should_abort(facts.crashes_in_a_row, facts.policy.crash_limit)
    chosen = facts.chosen
    is_first = ground.base is None and ground.beside is None
    return Suggestion(
        strategy=strategy_view(strategy),
        strategy_mode=strategy.mode,
        total_experiments=tag.total,
        category_stats={name: CategoryCount(total=total, kept=kept) for name, (total, kept) in stats.items()},
        underexplored_categories=unexplored,
        high_yield_categories=yielding,
        barren_categories=list(empty),
        near_misses_available=ground.near_count,
        near_miss_categories=sorted({e.category for e in ground.near}),
        recent_bpb_trend=[
            e.own_value
            for e in ground.recent
            if e.own_value is not None and not e.is_claim and e.status != "retracted"
        ],
        suggestions=suggest(
            strategy.mode,
            ground,
            unexplored=unexplored,
            yielding=_to_exploit(facts, yielding) if strategy.mode == "exploit" else yielding,
            pair=uncombined_pair(ground.near, facts.combined) if strategy.mode == "combine" else None,
            least=_to_explore(facts, ground.recent),
            barren=empty,
            waits_for=_coming_baseline(facts),
            crashes_in_a_row=facts.crashes_in_a_row if aborts else 0,
        ),
        base_commit_sha=ground.commit_sha,
        trace_id=chosen.trace_id if chosen else None,
        parent_ids=chosen.parent_ids if chosen else None,
        trace_mode=facts.policy.traces.mode,
        consecutive_crashes=facts.crashes_in_a_row,
        should_abort=aborts,
        next=_next(facts, chosen, is_first=is_first, aborts=aborts),
        paused=tag.paused_at is not None,
        hint=obstacle(tag),
    )


def least_tried(stats: Mapping[str, tuple[int, int]]) -> str:
    """The category to look at where the search explores."""
    return least_tried_of(stats, CATEGORIES)


def _to_explore(facts: SearchFacts, recent: Sequence[Sketch]) -> Least:
    """The category to explore, with its newest tries: the least tried, or the most promising one."""
    if facts.policy.adapt.rule == "published":
        return Least(facts.least_tried, facts.tries, is_new=facts.least_tried not in facts.categories)
    category = best_category(facts.ends, CATEGORIES)
    tries = [e for e in recent if e.category == category and e.retest_of is None]
    return Least(category, tries, is_new=category not in facts.categories)


def _to_exploit(facts: SearchFacts, yielding: Sequence[str]) -> Sequence[str]:
    """The categories to go on in: those of the highest yield, or that of the newest keep."""
    if facts.policy.adapt.rule == "published":
        return yielding
    kept = kept_category(facts.ends)
    return [] if kept is None else [kept]


def _coming_baseline(facts: SearchFacts) -> str | None:
    """Words for the baseline that the lab runs before anything else; None where it runs none."""
    if waits_for_baseline(facts.tag):
        return f"the baseline {facts.tag.baseline_id}"
    return "the baseline" if owes_baseline(facts.tag, facts.policy) else None


def _next(facts: SearchFacts, chosen: Selection | None, *, is_first: bool, aborts: bool) -> str:
    if aborts:
        return abort_step(facts.crashes_in_a_row)
    if chosen is None and facts.policy.traces.mode == "multi":
        return SELECT
    is_run = _coming_baseline(facts) is not None
    what = "submit it unchanged" if is_first and not is_run else "commit one change to it, and submit that"
    named = f" with selection_id {chosen.selection_id}" if chosen else ""
    step = f"Go to base_commit_sha, {what}{named}: POST /api/experiment/submit."
    return (
        f"{step} The lab runs the unchanged train.py before it, as the baseline."
        if is_first and is_run
        else step
    )
