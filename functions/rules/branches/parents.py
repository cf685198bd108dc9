"""Experiments as nodes of the graph: what may be a parent, and how a selection names its parents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from functions.rules.branches.ancestry import JUDGED
from state.errors import Conflict, Invalid
from state.ids import number_of
from state.records import Experiment


def check_parents(tag: str, parent_ids: Sequence[str], found: Mapping[str, Experiment]) -> None:
    """Refuse parents that nothing can be built on.

    Raises:
        Invalid: one is no experiment of the tag. Conflict: one is not finished, or came in from an earlier epoch.
    """
    for parent in parent_ids:
        e = found.get(parent)
        if e is None or e.tag != tag or e.retest_of is not None:
            raise Invalid(
                f"parent {parent!r} is no experiment of {tag!r}",
                hint="POST /api/trace/list shows the graph; leave parent_ids out to have a parent chosen",
                fields={"code": "unknown_parent"},
            )
        if e.status not in JUDGED:
            raise Conflict(
                f"parent {parent!r} is {e.status}: only what has a result is built on",
                hint=f"wait for it with GET /api/experiment/{parent}/wait, or name another",
                fields={"code": "unfinished_parent"},
            )
        if e.outdated:
            raise Conflict(
                f"parent {parent!r} was selected in an epoch that was over when it came in: it is nobody's parent",
                hint="build on a node of the present epoch: POST /api/trace/list shows them",
                fields={"code": "stale_epoch"},
            )


def parents_named(parent_ids: Sequence[str], base: Experiment | None = None) -> dict[str, Any]:
    """The part of a selection that names its parents and the code to check out."""
    return {
        "parent_ids": list(parent_ids),
        "local_selection": [number_of(parent) for parent in parent_ids],
        "base_experiment_id": base.experiment_id if base else None,
        "base_commit_sha": base.commit_sha if base else None,
    }
