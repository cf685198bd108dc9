"""First strategy and policy of a new tag."""

from __future__ import annotations

from state.policy import Policy
from state.records import Strategy, Tag

FIRST = Strategy(
    mode="explore", explore_ratio=0.7, temperature=1.0, reason="a new tag: look around", version=1
)
"""The strategy of a new tag."""

SILENT_S = 600.0
"""Seconds of silence beyond its budget after which a swarm's worker has lost its run."""


def first_policy(near_miss_margin: float | None, crash_limit: int) -> Policy:
    """The policy of a new tag, with the lab's own defaults."""
    return Policy(near_miss_margin=near_miss_margin, crash_limit=crash_limit)


def swarm_tag(name: str) -> Tag:
    """A tag for a swarm.

    It has no base commit: each worker brings its own train.py and sets constants of it.
    """
    return Tag(name=name, branch=f"swarm/{name}", created_at=0.0)


def swarm_policy(lab_s: Policy) -> Policy:
    """Policy of a swarm's tag: deltas from each worker's own baseline are compared; the lab runs no baseline."""
    return lab_s.changed(
        {
            "baseline_first": False,
            "compare_by": "delta",
            "stopping.rule": "adaptive",
            "stale_after_s": SILENT_S,
        }
    )
