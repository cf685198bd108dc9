"""How experiments and selections are shown in a few words."""

from __future__ import annotations

from typing import Any

from functions.rules.search.suggestions import short
from state.records import Result, Selection, Sketch, stamp


def sketch_view(e: Sketch) -> dict[str, Any]:
    """One experiment."""
    return {
        "experiment_id": e.experiment_id,
        "status": e.status,
        "agent": e.agent,
        "val_bpb": e.val_bpb,
        **({"delta_bpb": e.delta_bpb} if e.delta_bpb is not None else {}),
        **({"reported": e.reported} if e.reported is not None else {}),
        **({"trust": e.trust} if e.trust is not None else {}),
        **({"claimed": True} if e.is_claim else {}),
        "category": e.category,
        "description": short(e.description, 60),
        "commit_sha": e.commit_sha[:12],
    }


def result_view(e: Result) -> dict[str, Any]:
    """One keep on the way down."""
    return {
        "id": e.experiment_id,
        "val_bpb": e.val_bpb,
        **({"delta_bpb": e.delta_bpb} if e.delta_bpb is not None else {}),
        "description": e.description,
        "category": e.category,
        "at": stamp(e.finished_at) if e.finished_at is not None else None,
    }


def selection_view(s: Selection) -> dict[str, Any]:
    """One selection that nothing was registered with."""
    return {
        "selection_id": s.selection_id,
        "agent": s.agent,
        "kind": s.kind,
        "trace_id": s.trace_id,
        "parent_ids": s.parent_ids,
        "base_commit_sha": s.base_commit_sha,
        "lease_expires_at": stamp(s.lease_expires_at),
    }
