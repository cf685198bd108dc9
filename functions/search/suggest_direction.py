"""search::suggest_direction tells an agent what to try next."""

from __future__ import annotations

from functions.contract import CATEGORIES, Call, Http, Request, Response, function
from functions.rules.budget import obstacle
from functions.rules.strategy_view import StrategyView, strategy_view
from functions.rules.suggestions import high_yield, suggest, uncombined_pair, underexplored
from functions.rules.verdict import near_band
from state.experiments import Experiments
from state.ids import Tag as TagName
from state.policies import Policies
from state.records import Experiment
from state.tags import Strategies, Tags

RECENT = 10
NEAR_MISSES_READ = 50
COMBINED_READ = 200


class Ask(Request):
    tag: TagName


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
    """What the next idea is built on: the best's commit, else the tag's base. A demotion moves it back."""
    paused: bool
    hint: str | None
    """Why a run of this tag would not begin now."""


@function("search::suggest_direction", Http("POST", "/api/search/suggest"), role="agent", writes=True)
async def suggest_direction(
    request: Ask,
    call: Call,
    tags: Tags,
    strategies: Strategies,
    policies: Policies,
    experiments: Experiments,
) -> Suggestion:
    """The strategy, what was tried how often, what paid off, and at least one concrete idea."""
    tag = await tags.get(request.tag)
    current = await strategies.get(request.tag)
    if current.decided_at < tag.total:
        await call.invoke("search::adapt", {"tag": request.tag})
        current = await strategies.get(request.tag)
    stats = await tags.categories(request.tag)
    best = await experiments.best(request.tag)
    near: list[Experiment] = []
    available = 0
    if best is not None:
        policy, _ = await policies.get(request.tag)
        band = near_band(best.val_bpb, tag.direction, policy.near_miss_margin)
        near, available = await experiments.near_misses(request.tag, *band, limit=NEAR_MISSES_READ)
    recent = await experiments.finished(request.tag, RECENT)
    unexplored, yielding = underexplored(stats, CATEGORIES), high_yield(stats)
    return Suggestion(
        strategy=strategy_view(current),
        total_experiments=tag.total,
        category_stats={name: CategoryCount(total=total, kept=kept) for name, (total, kept) in stats.items()},
        underexplored_categories=unexplored,
        high_yield_categories=yielding,
        near_misses_available=available,
        near_miss_categories=sorted({e.category for e in near}),
        recent_bpb_trend=[e.val_bpb for e in recent if e.val_bpb is not None],
        suggestions=suggest(
            current.mode,
            unexplored=unexplored,
            yielding=yielding,
            pair=await _pair(request.tag, near, experiments) if current.mode == "combine" else None,
            best=await experiments.get(best.experiment_id) if best else None,
            recent=recent,
        ),
        base_commit_sha=best.commit_sha if best else tag.base_commit,
        paused=tag.paused_at is not None,
        hint=obstacle(tag),
    )


async def _pair(
    tag: str, near: list[Experiment], experiments: Experiments
) -> tuple[Experiment, Experiment] | None:
    """Two near misses to combine; a combination may be registered under any category, so the newest count too."""
    combined = await experiments.parents(tag, COMBINED_READ, category="combination")
    return uncombined_pair(near, [*combined, *await experiments.parents(tag, COMBINED_READ)])
