"""report::tags lists the lines of research."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from functions.contract import Http, Request, Response, function
from functions.rules.keeps.gains import unbiased
from functions.views.budgets import budget_view, obstacle
from state.records import stamp
from state.reports import Reports, TagWithBest


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
    """
    tag, best = found.tag, found.best
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
        "best_val_bpb": best.val_bpb if best else None,
        "best_experiment_id": best.experiment_id if best else None,
        "paused": tag.paused_at is not None,
        "pause_reason": tag.pause_reason,
        "budget": budget_view(tag).model_dump(),
        "hint": obstacle(tag),
    }
