"""Experiments as nodes of the graph: what may be a parent, and the code that a node stands on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from state.errors import Conflict, Invalid
from state.experiments import Experiments
from state.records import Experiment

NODES = ("keep", "discard", "crash", "timeout")


async def parents_of(tag: str, parent_ids: Sequence[str], experiments: Experiments) -> list[Experiment]:
    """The nodes that a caller names as parents.

    Raises:
        Invalid: one is no experiment of the tag. Conflict: one is not finished, or came in from an earlier epoch.
    """
    found = {e.experiment_id: e for e in await experiments.many(parent_ids)}
    for parent in parent_ids:
        e = found.get(parent)
        if e is None or e.tag != tag or e.retest_of is not None:
            raise Invalid(
                f"parent {parent!r} is no experiment of {tag!r}",
                hint="POST /api/trace/list shows the graph; leave parent_ids out to have a parent chosen",
                fields={"code": "unknown_parent"},
            )
        if e.status not in NODES:
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
    return [found[parent] for parent in dict.fromkeys(parent_ids)]


def parents_named(parents: Sequence[Experiment], base: Experiment | None) -> dict[str, Any]:
    """The part of a selection that names its parents and the code to check out."""
    return {
        "parent_ids": [e.experiment_id for e in parents],
        "local_selection": [e.number for e in parents],
        "base_experiment_id": base.experiment_id if base else None,
        "base_commit_sha": base.commit_sha if base else None,
    }
