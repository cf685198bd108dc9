"""How experiments and selections are shown in a few words."""

from __future__ import annotations

from typing import Any

from functions.formats.metrics_block import deciding_line
from functions.rules.search.suggestions import short
from state.records import Result, Selection, Sketch, stamp


def sketch_view(e: Sketch) -> dict[str, Any]:
    """One experiment by what agents use of it. Leaves out what says nothing, but for the value and the agent."""
    said = {name: getattr(e, name) for name in e.FOR_AGENTS} | in_few_words(e)
    return {
        name: value
        for name, value in said.items()
        if name in ("val_bpb", "agent") or not (value is None or value is False)
    }


def in_few_words(e: Sketch) -> dict[str, Any]:
    """The fields that agents need no more of than this."""
    return {
        "claimed": e.is_claim,
        "description": short(e.description, 60),
        "commit_sha": e.commit_sha[:12],
        "error": short(deciding_line(e.error or "", e.error_kind), 100) or None,
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
