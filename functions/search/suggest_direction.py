"""search::suggest_direction tells an agent what to try next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import Field

from functions.contract import CATEGORIES, Call, Http, Request, Response, function
from functions.rules.branches.ancestry import branch
from functions.rules.keeps.verdict import Key, near_band
from functions.rules.search.suggestions import high_yield, near_to, suggest, uncombined_pair, underexplored
from functions.views.budgets import obstacle
from functions.views.strategies import StrategyView, strategy_view
from state.errors import Invalid
from state.experiments import Experiments
from state.ids import Id
from state.ids import Tag as TagName
from state.policies import Policies
from state.policy import Policy
from state.records import Experiment, Selection, Tag
from state.tags import Strategies, Tags
from state.traces import Traces

RECENT = 10
NEAR_MISSES_READ = 50
COMBINED_READ = 200
ANCESTORS_READ = 200
BESIDE_READ = 20


class Ask(Request):
    tag: TagName
    selection_id: Id | None = Field(None, description="speak of the branch that was selected")


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
    request: Ask,
    call: Call,
    tags: Tags,
    strategies: Strategies,
    policies: Policies,
    experiments: Experiments,
    traces: Traces,
) -> Suggestion:
    """The strategy, what was tried how often, what paid off, and at least one concrete idea."""
    tag = await tags.get(request.tag)
    current = await strategies.get(request.tag)
    if current.decided_at < tag.total:
        await call.invoke("search::adapt", {"tag": request.tag})
        current = await strategies.get(request.tag)
    stats = await tags.categories(request.tag)
    policy, _ = await policies.get(request.tag)
    if request.selection_id is None:
        chosen, ground = None, await _ground_of_tag(tag, policy, experiments)
    else:
        chosen = await traces.selection(request.selection_id)
        ground = await _ground_of_branch(chosen, tag, policy, experiments, traces)
    unexplored, yielding = underexplored(stats, CATEGORIES), high_yield(stats)
    return Suggestion(
        strategy=strategy_view(current),
        total_experiments=tag.total,
        category_stats={name: CategoryCount(total=total, kept=kept) for name, (total, kept) in stats.items()},
        underexplored_categories=unexplored,
        high_yield_categories=yielding,
        near_misses_available=ground.near_count,
        near_miss_categories=sorted({e.category for e in ground.near}),
        recent_bpb_trend=[e.val_bpb for e in ground.recent if e.val_bpb is not None],
        suggestions=suggest(
            current.mode,
            unexplored=unexplored,
            yielding=yielding,
            pair=await _pair(request.tag, ground.near, experiments) if current.mode == "combine" else None,
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


@dataclass(frozen=True)
class Ground:
    """What a suggestion stands on: the tag's best, or the base of a branch."""

    base: Experiment | None
    commit_sha: str | None
    near: Sequence[Experiment]
    """Near misses of the base, best first."""
    near_count: int
    recent: Sequence[Experiment]
    """Oldest first."""
    merging: Sequence[Experiment] = ()
    """What a merge brings together."""
    beside: Sequence[Experiment] | None = None
    """Of a new root: what the other branches began with."""


async def _ground_of_tag(tag: Tag, policy: Policy, experiments: Experiments) -> Ground:
    best = await experiments.best(tag.name)
    near: list[Experiment] = []
    count = 0
    if best is not None:
        band = near_band(best.val_bpb, tag.direction, policy.near_miss_margin)
        near, count = await experiments.near_misses(tag.name, *band, limit=NEAR_MISSES_READ)
    return Ground(
        base=await experiments.get(best.experiment_id) if best else None,
        commit_sha=best.commit_sha if best else tag.base_commit,
        near=near,
        near_count=count,
        recent=await experiments.finished(tag.name, RECENT),
    )


async def _ground_of_branch(
    chosen: Selection, tag: Tag, policy: Policy, experiments: Experiments, traces: Traces
) -> Ground:
    """The branch's own base, near misses and newest nodes, whatever the others do.

    Raises:
        Invalid: the selection is another tag's.
    """
    if chosen.tag != tag.name:
        raise Invalid(f"{chosen.selection_id} is a selection of {chosen.tag!r}", hint="ask with its own tag")
    known, _ = await experiments.ancestors(chosen.parent_ids, ANCESTORS_READ)
    main = Key(tag.key_gpu_class, tag.key_evaluator_hash, tag.key_budget_seconds)
    above = branch(chosen.parent_ids, known, tag.direction, main).ancestors
    base = await experiments.find(chosen.base_experiment_id) if chosen.base_experiment_id else None
    near = near_to(base, above, tag.direction, policy.near_miss_margin)
    merging = chosen.combines or chosen.parent_ids if chosen.kind == "merge" else []
    beside = None
    if chosen.kind == "new_root" and chosen.select_seq > 1:
        newest, _ = await traces.page(tag.name, BESIDE_READ)
        beside = await experiments.many([t.root for t in newest if t.root is not None])
    return Ground(
        base=base,
        commit_sha=chosen.base_commit_sha or tag.base_commit,
        near=near,
        near_count=len(near),
        recent=above[-RECENT:],
        merging=await experiments.many(merging),
        beside=beside,
    )


async def _pair(
    tag: str, near: Sequence[Experiment], experiments: Experiments
) -> tuple[Experiment, Experiment] | None:
    """Two near misses to combine; a combination may be registered under any category, so the newest count too."""
    combined = await experiments.parents(tag, COMBINED_READ, category="combination")
    return uncombined_pair(near, [*combined, *await experiments.parents(tag, COMBINED_READ)])
