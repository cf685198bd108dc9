"""How a tag is shown in a list."""

from __future__ import annotations

from typing import Any

from functions.views.budgets import budget_view, obstacle
from state.records import Best, Tag, stamp


def tag_view(tag: Tag, best: Best | None) -> dict[str, Any]:
    """A tag with its counters and its best."""
    return {
        "name": tag.name,
        "branch": tag.branch,
        "created_at": stamp(tag.created_at),
        "metric": tag.metric,
        "direction": tag.direction,
        "score": tag.score,
        "total_experiments": tag.total,
        "kept_experiments": tag.kept,
        "best_val_bpb": best.val_bpb if best else None,
        "best_experiment_id": best.experiment_id if best else None,
        "paused": tag.paused_at is not None,
        "pause_reason": tag.pause_reason,
        "budget": budget_view(tag).model_dump(),
        "hint": obstacle(tag),
    }
