"""report::summary is a tag's state on one page."""

from __future__ import annotations

from typing import Any

from functions.contract import Request, Response, function
from functions.rules.keeps.noise import Noise, false_share, noise_of
from functions.views.budgets import Budget, budget_view, obstacle
from functions.views.claims import claim_view
from functions.views.gpus import pool_counts
from functions.views.strategies import StrategyView, strategy_view
from state.experiments import Experiments
from state.ids import Tag as TagName
from state.noise import Noises
from state.pool import Pool
from state.records import Experiment, stamp
from state.settings import Settings
from state.tags import Strategies, Tags

KEEPS_SHOWN = 1000


class Ask(Request):
    tag: TagName


class Summary(Response):
    tag: str
    branch: str
    best: dict[str, Any] | None
    stats: dict[str, int | float]
    categories: dict[str, dict[str, int]]
    bpb_progression: list[dict[str, Any]]
    noise: Noise | None
    """Run-to-run noise on the tag's main class of GPU; None while no code ran twice on it."""
    false_keeps_at_least: float | None
    """Estimated share of its newest 1,000 keeps that are not truly better; None while nobody can tell."""
    total_training_minutes: float
    strategy: StrategyView
    gpu_pool: dict[str, int]
    paused: bool
    pause_reason: str | None
    budget: Budget
    hint: str | None
    """Why a run of this tag would not begin now."""


@function("report::summary", role="viewer")
async def summary(
    request: Ask,
    tags: Tags,
    experiments: Experiments,
    strategies: Strategies,
    pool: Pool,
    noises: Noises,
    settings: Settings,
) -> Summary:
    """Counters, categories, the keeps in order, the strategy and the pool."""
    tag = await tags.get(request.tag)
    best = await experiments.best(request.tag)
    counts = await experiments.counts(request.tag, ("queued", "leased", "running"))
    keeps = await experiments.by_number(request.tag, "keep", KEEPS_SHOWN)
    spread = await noises.spread(tag.name, tag.key_gpu_class)
    noise = noise_of(spread.squares, spread.df)
    return Summary(
        tag=tag.name,
        branch=tag.branch,
        best=(await _best_view(experiments, best.experiment_id, noise)) if best else None,
        stats={
            "total": tag.total,
            "kept": tag.kept,
            "discarded": tag.discarded,
            "crashed": tag.crashed,
            "running": counts["running"] + counts["leased"],
            "queued": counts["queued"],
            "stopped": tag.stopped,
            "lost": tag.lost,
            "invalid": tag.invalid,
            "keep_rate": tag.kept / tag.total if tag.total else 0.0,
        },
        categories={
            name: {"total": total, "kept": kept}
            for name, (total, kept) in (await tags.categories(request.tag)).items()
        },
        bpb_progression=[point(e) for e in keeps],
        noise=noise,
        false_keeps_at_least=false_share(e.p_better for e in keeps),
        total_training_minutes=tag.training_seconds / 60,
        strategy=strategy_view(await strategies.get(request.tag)),
        gpu_pool=pool_counts(await pool.all(), await pool.now(), settings.stale_s),
        paused=tag.paused_at is not None,
        pause_reason=tag.pause_reason,
        budget=budget_view(tag),
        hint=obstacle(tag),
    )


def point(e: Experiment) -> dict[str, Any]:
    """One keep on the way down."""
    return {
        "id": e.experiment_id,
        "val_bpb": e.val_bpb,
        "description": e.description,
        "category": e.category,
        "at": stamp(e.finished_at) if e.finished_at is not None else None,
    }


async def _best_view(experiments: Experiments, experiment_id: str, noise: Noise | None) -> dict[str, Any]:
    e = await experiments.get(experiment_id)
    [retests] = await experiments.retests([e])
    return {
        "experiment_id": e.experiment_id,
        "val_bpb": e.val_bpb,
        "commit_sha": e.commit_sha,
        "description": e.description,
        "category": e.category,
        "trust": e.trust,
        **claim_view(retests, noise).model_dump(),
    }
