"""Parents: which experiments may be one, and the fields that name them in a selection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from functions.rules.branches.ancestry import JUDGED
from state.errors import Conflict, Invalid
from state.ids import number_of
from state.records import OPEN, Experiment


def check_parents(tag: str, parent_ids: Sequence[str], found: Mapping[str, Experiment]) -> None:
    """Check that experiments can be built on these parents.

    Raises:
        Invalid: one is not an experiment of the tag. Conflict: one has no result, or is of an earlier epoch.
    """
    for parent in parent_ids:
        e = found.get(parent)
        if e is None or e.tag != tag or e.retest_of is not None:
            raise Invalid(
                f"parent {parent!r} is not an experiment of {tag!r}",
                hint="POST /api/trace/list shows the graph; omit parent_ids to have a parent chosen",
                fields={"code": "unknown_parent"},
            )
        if e.status not in JUDGED:
            is_open = e.status in OPEN
            wait = f"wait for it with GET /api/experiment/{parent}/wait, or " if is_open else ""
            raise Conflict(
                f"parent {parent!r} is {e.status}: a parent must have a result",
                hint=f"{wait}name another: POST /api/trace/list shows the graph",
                fields={"code": "unfinished_parent" if is_open else "no_result"},
            )
        if e.outdated:
            raise Conflict(
                f"parent {parent!r} finished after the epoch of its selection: it cannot be a parent",
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
