"""report::tags lists the lines of research."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from functions.contract import Http, Request, Response, function
from functions.views.budgets import budget_view, obstacle
from state.experiments import Experiments
from state.records import stamp
from state.tags import Tags


class Ask(Request):
    limit: int = Field(100, ge=1, le=1000)
    offset: int = Field(0, ge=0, le=1_000_000_000)


class Listed(Response):
    tags: list[dict[str, Any]]
    total: int


@function("report::tags", Http("GET", "/api/report/tags"), role="viewer")
async def tags(request: Ask, tags: Tags, experiments: Experiments) -> Listed:
    """Every tag with its counters and best, newest first."""
    shown = []
    for tag in await tags.newest(request.offset, request.limit):
        best = await experiments.best(tag.name)
        shown.append(
            {
                "name": tag.name,
                "branch": tag.branch,
                "created_at": stamp(tag.created_at),
                "metric": tag.metric,
                "direction": tag.direction,
                "total_experiments": tag.total,
                "kept_experiments": tag.kept,
                "best_val_bpb": best.val_bpb if best else None,
                "best_experiment_id": best.experiment_id if best else None,
                "paused": tag.paused_at is not None,
                "pause_reason": tag.pause_reason,
                "budget": budget_view(tag).model_dump(),
                "hint": obstacle(tag),
            }
        )
    return Listed(tags=shown, total=await tags.count())
