"""Runs and tags as tables: summary, tags, columns of runs, results.tsv."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from functions.experiments.rules.gains import gains_of, unbiased
from functions.experiments.views.hints import Budget, budget_view, obstacle
from functions.experiments.views.runs import claim_of, result_view, score_of
from functions.formats.tsv import HEADER, HEADER_BY_DELTA, rows
from functions.kernel.contract import Http, OfTag, Request, Response, function
from functions.pool.rules.health import pool_counts
from functions.search.rules.strategy import StrategyView, strategy_view
from functions.search.rules.suggestions import short
from functions.trust.rules.guarding import in_words
from functions.trust.rules.noise import false_share
from state.experiments import PAGE_BYTES, Experiments, Window
from state.facts import Noise, Runs, Spread
from state.ids import ExperimentId, Tag
from state.records import Counters, Direction, Experiment, RunRow, Score, VariedRow, stamp, view_of
from state.reports import Reports, RunRows, SummaryFacts, TagWithBest
from state.settings import Settings
from state.tags import Policies


class Stats(Counters, Response):
    """How many experiments of a tag there are in each state."""

    running: int
    """On workers, and registered ones, which their agents train."""
    queued: int
    keep_rate: float
    """Kept of total; 0 while nothing ended."""


class Summary(Response):
    tag: str
    branch: str
    score: Score
    """Source of the lab's values: train.py prints them, or a trusted evaluator measures them afterwards."""
    best: dict[str, Any] | None
    stats: Stats
    categories: dict[str, dict[str, int]]
    bpb_progression: list[dict[str, Any]]
    noise: Noise | None
    """Run-to-run noise on the tag's main class of GPU; None while no code ran twice there."""
    false_keeps_at_least: float | None
    """Estimated share of its newest 1,000 keeps that are not truly better; None while it cannot be told."""
    total_training_minutes: float
    strategy: StrategyView
    strategy_mode: str
    """`strategy.mode` once more."""
    gpu_pool: dict[str, int]
    paused: bool
    pause_reason: str | None
    budget: Budget
    hint: str | None
    """Why a run of this tag would not begin now."""


@function("report::summary", role="viewer")
async def summary(request: OfTag, reports: Reports, settings: Settings) -> Summary:
    """Counters, categories, the keeps in order, the strategy and the pool."""
    facts = await reports.summary(request.tag)
    tag = facts.tag
    return Summary(
        tag=tag.name,
        branch=tag.branch,
        score=tag.score,
        best=_best(facts.best, facts.noise) if facts.best else None,
        stats=_stats(facts),
        categories={name: {"total": total, "kept": kept} for name, (total, kept) in facts.categories.items()},
        bpb_progression=[result_view(e) for e in facts.keeps],
        noise=facts.noise.noise,
        false_keeps_at_least=false_share(e.p_better for e in facts.keeps),
        total_training_minutes=tag.training_seconds / 60,
        strategy=strategy_view(facts.strategy),
        strategy_mode=facts.strategy.mode,
        gpu_pool=pool_counts(facts.slots, facts.now, settings.stale_s),
        paused=tag.paused_at is not None,
        pause_reason=tag.pause_reason,
        budget=budget_view(tag),
        hint=obstacle(tag),
    )


def _best(runs: Runs[Experiment], noise: Spread) -> dict[str, Any]:
    e = runs.experiment
    fields = {*("experiment_id", "val_bpb", "reported", "commit_sha"), *("description", "category", "trust")}
    more = {"score": score_of(e), "commit": e.commit_sha}
    return e.model_dump(include=fields) | more | claim_of(runs, noise).model_dump()


def _stats(facts: SummaryFacts) -> Stats:
    tag, now = facts.tag, facts.in_progress
    return view_of(
        Stats,
        tag,
        running=now["running"] + now["leased"] + now["registered"],
        queued=now["queued"],
        keep_rate=tag.kept / tried if (tried := tag.total - tag.baselines) else 0.0,
    )


class ListTags(Request):
    limit: int = Field(100, ge=1, le=1000, description="most tags that are answered")
    offset: int = Field(0, ge=0, le=1_000_000_000, description="so many newer ones are left out")


class TagList(Response):
    tags: list[dict[str, Any]]
    total: int


@function("report::tags", Http("GET", "/api/report/tags"), role="viewer")
async def tags(request: ListTags, reports: Reports) -> TagList:
    """Every tag with its counters and best, newest first."""
    found, total = await reports.tags(request.offset, request.limit)
    return TagList(tags=[tag_view(one) for one in found], total=total)


def tag_view(found: TagWithBest) -> dict[str, Any]:
    """A tag with its counters and its best.

    `best` is the value to show: the mean of the best's further runs, else its value, as in `report::night`.
    `sigma` is the run-to-run noise, or null. It says how many digits of `best` mean something.
    """
    tag, best = found.tag, found.best
    noise = found.noise.noise
    return {
        "name": tag.name,
        "branch": tag.branch,
        "created_at": stamp(tag.created_at),
        "metric": tag.metric,
        "direction": tag.direction,
        "score": tag.score,
        "total_experiments": tag.total,
        "kept_experiments": tag.kept,
        "best": unbiased(found.runs)[0],
        "sigma": noise.sigma if noise else None,
        "best_val_bpb": best.val_bpb if best else None,
        "best_experiment_id": best.experiment_id if best else None,
        "paused": tag.paused_at is not None,
        "pause_reason": tag.pause_reason,
        "budget": budget_view(tag).model_dump(),
        "guards": in_words(found.policy.guards, tag.direction),
        "hint": obstacle(tag),
    }


TEXT = 120
"""Characters of a text in a row."""
MOST_WITH_CONSTANTS = 1000

RowTrust = Literal["first", "provisional", "unconfirmed", "confirmed", "demoted", "claimed"]


class ListRuns(Request):
    tag: Tag
    limit: int = Field(
        2000, ge=1, le=5000, description="most runs that are answered; with their constants 1000 at most"
    )
    before: Annotated[int, Field(ge=0)] | None = Field(
        None, description="only runs with a smaller number: next_before of the page before", examples=[2001]
    )
    ids: list[ExperimentId] | None = Field(
        None,
        max_length=500,
        description="these runs of the tag instead of a page; a retest's id means the run that it repeats",
        examples=[["mar11-47", "mar11-48.2"]],
    )
    constants: bool = Field(False, description="answer the constants that each run set")


class RunColumns(Response):
    """Runs as lists of equal length: the nth value of each list is of the nth run."""

    id: list[str]
    number: list[int]
    status: list[str]
    trust: list[RowTrust | None]
    """Evidence for a keep; demoted, for one that was taken back. claimed: only its agent measured it."""
    baseline: list[bool]
    near_miss: list[bool]
    over_budget: list[bool]
    error_kind: list[str | None]
    value: list[float | None]
    """Value that it is compared by: a mean where further runs of its code count."""
    gain: list[float | None]
    """Gain over the best of its time on the same seeds; above zero is better."""
    retests: list[list[float | None]]
    """Values of further runs of its code; null: not over, or without a value."""
    category: list[str]
    description: list[str]
    """Changes, 120 characters at most."""
    hypothesis: list[str]
    """120 characters at most."""
    agent: list[str | None]
    worker: list[str | None]
    """Worker of a swarm."""
    gpu: list[str | None]
    """GPU or CPU slot; in a swarm, its worker's type of GPU."""
    branch: list[str | None]
    """Its trace."""
    parents: list[list[str]]
    registered_at: list[float]
    """Seconds since 1970, as `finished_at`."""
    finished_at: list[float | None]
    duration_s: list[float | None]
    """Seconds of training."""
    constants: list[dict[str, Any] | None] | None
    """Constants that each run set, where they were asked for. Null: it set none, or over 2,000 bytes of them."""


class ListedRuns(Response):
    tag: str
    metric: str
    """delta_bpb where runs are compared by the difference to their worker's baseline."""
    direction: Direction
    sigma: float | None
    """Standard deviation of runs of the same code on the main class of GPU; null: not known yet."""
    total: int
    """Runs of the tag, without retests."""
    next_before: int | None
    """`before` of the next page; null: this is the last one."""
    runs: RunColumns
    """The newest first, without retests."""


@function("report::runs", role="viewer")
async def runs(request: ListRuns, reports: Reports, experiments: Experiments) -> ListedRuns:
    """A tag's runs as columns, newest first, without retests; `next_before` leads to older ones."""
    kind = VariedRow if request.constants else RunRow
    limit = min(request.limit, MOST_WITH_CONSTANTS) if request.constants else request.limit
    found = await reports.rows(request.tag, kind, limit, before=request.before, ids=request.ids)
    noise = found.noise.noise
    last = found.rows[-1].number if request.ids is None and found.rows else 0
    return ListedRuns(
        tag=found.tag.name,
        metric="delta_bpb" if found.by_delta else found.tag.metric,
        direction=found.tag.direction,
        sigma=noise.sigma if noise else None,
        total=found.total,
        next_before=last if last > 1 else None,
        runs=await _columns(found, experiments, has_constants=request.constants),
    )


async def _columns(found: RunRows, experiments: Experiments, *, has_constants: bool) -> RunColumns:
    rows = found.rows
    known = await experiments.beside(rows)
    gains = gains_of(rows, known, found.tag.direction)
    retests = {name: [r.own_value for r in runs.retests] for name, runs in known.items() if runs.retests}
    return RunColumns(
        id=[e.experiment_id for e in rows],
        number=[e.number for e in rows],
        status=[e.status for e in rows],
        trust=["claimed" if e.is_claim else e.trust for e in rows],
        baseline=[e.baseline for e in rows],
        near_miss=[bool(e.near_miss) for e in rows],
        over_budget=[e.over_budget for e in rows],
        error_kind=[e.error_kind for e in rows],
        value=[e.judged for e in rows],
        gain=[gains.get(e.experiment_id) for e in rows],
        retests=[retests.get(e.experiment_id, []) for e in rows],
        category=[e.category for e in rows],
        description=[short(e.description, TEXT) for e in rows],
        hypothesis=[short(e.hypothesis, TEXT) for e in rows],
        agent=[e.agent for e in rows],
        worker=[e.worker_id for e in rows],
        gpu=[e.gpu_id or e.gpu_type for e in rows],
        branch=[e.trace_id for e in rows],
        parents=[e.parent_ids for e in rows],
        registered_at=[e.registered_at for e in rows],
        finished_at=[e.finished_at for e in rows],
        duration_s=[e.training_seconds if e.wall_seconds is None else e.wall_seconds for e in rows],
        constants=[e.config_delta if isinstance(e, VariedRow) else None for e in rows]
        if has_constants
        else None,
    )


PAGE = 1000


class WriteTsv(Request):
    tag: Tag
    spreadsheet: bool = Field(
        False,
        description="quote texts that a spreadsheet would take for formulas: they begin with = + @ or -",
    )


class Tsv(Response):
    tsv: str
    count: int
    false_keeps_at_least: float | None
    """Estimated share of the keeps that are not truly better; None while it cannot be told."""


@function("report::tsv", role="viewer", costly=True)
async def tsv(request: WriteTsv, experiments: Experiments, policies: Policies) -> Tsv:
    """Every finished experiment as `commit val_bpb memory_gb status description`, oldest first.

    In a tag that compares deltas the judged one stands before the value.
    """
    policy, _ = await policies.get(request.tag)
    by_delta = policy.compare_by == "delta"
    lines: list[str] = []
    chances: list[float | None] = []
    window = Window(request.tag, PAGE, newest=False, most_bytes=PAGE_BYTES)
    while True:
        page = await experiments.history(Experiment, window)
        lines += rows(page.experiments, by_delta=by_delta, for_spreadsheet=request.spreadsheet)
        chances += [e.p_better for e in page.experiments if e.status == "keep"]
        if page.following is None:
            return Tsv(
                tsv="\n".join([HEADER_BY_DELTA if by_delta else HEADER, *lines]) + "\n",
                count=len(lines),
                false_keeps_at_least=false_share(chances),
            )
        window = replace(window, cursor=page.following)
