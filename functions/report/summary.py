"""report::summary is a tag's state on one page."""

from __future__ import annotations

from typing import Any

from functions.contract import Request, Response, function
from functions.rules.keeps.noise import Noise, false_share, noise_of
from functions.views.budgets import Budget, budget_view, obstacle
from functions.views.experiments import claim_of, result_view, score_of
from functions.views.gpus import pool_counts
from functions.views.strategies import StrategyView, strategy_view
from state.facts import Runs, Spread
from state.ids import Tag as TagName
from state.records import Experiment, Score
from state.reports import Reports, SummaryFacts
from state.settings import Settings


class Summarise(Request):
    tag: TagName


class Stats(Response):
    """How many experiments of a tag there are in each state."""

    total: int
    """Those that ended as keep, discard, crash or timeout."""
    kept: int
    discarded: int
    crashed: int
    running: int
    """On workers, and registered ones, which their agents train."""
    queued: int
    stopped: int
    lost: int
    invalid: int
    retracted: int
    """Retracted results, which count in nothing else."""
    claimed: int
    """Claims: discards that only their agents measured, in a tag that the lab measures. They count nowhere else."""
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
async def summary(request: Summarise, reports: Reports, settings: Settings) -> Summary:
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
        noise=noise_of(facts.noise.squares, facts.noise.df),
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
    return {
        "experiment_id": e.experiment_id,
        "val_bpb": e.val_bpb,
        "score": score_of(e),
        "reported": e.reported,
        "commit_sha": e.commit_sha,
        "commit": e.commit_sha,
        "description": e.description,
        "category": e.category,
        "trust": e.trust,
        **claim_of(runs, noise).model_dump(),
    }


def _stats(facts: SummaryFacts) -> Stats:
    tag, now = facts.tag, facts.in_progress
    return Stats(
        total=tag.total,
        kept=tag.kept,
        discarded=tag.discarded,
        crashed=tag.crashed,
        running=now["running"] + now["leased"] + now["registered"],
        queued=now["queued"],
        stopped=tag.stopped,
        lost=tag.lost,
        invalid=tag.invalid,
        retracted=tag.retracted,
        claimed=tag.claimed,
        keep_rate=tag.kept / tried if (tried := tag.total - tag.baselines) else 0.0,
    )
