"""What a new tag begins with, whichever way it is opened."""

from __future__ import annotations

from state.policy import Policy
from state.records import Strategy, Tag

FIRST = Strategy(
    mode="explore", explore_ratio=0.7, temperature=1.0, reason="a new tag: look around", version=1
)
"""The strategy of a new tag."""

SILENT_S = 600.0
"""A swarm's worker that is silent for so long beyond its budget has lost its run."""


def first_policy(near_miss_margin: float | None, crash_limit: int) -> Policy:
    """The policy of a new tag, with the lab's own defaults."""
    return Policy(near_miss_margin=near_miss_margin, crash_limit=crash_limit)


def swarm_tag(name: str) -> Tag:
    """A tag that is opened for a swarm.

    Its workers bring a train.py each and patch constants of it: there is no commit that all of them begin from.
    """
    return Tag(name=name, branch=f"swarm/{name}", created_at=0.0)


def swarm_policy(lab_s: Policy) -> Policy:
    """Its policy: every worker measures a baseline of its own, so the lab runs none, and deltas are compared."""
    return lab_s.changed(
        {
            "baseline_first": False,
            "compare_by": "delta",
            "stopping.rule": "adaptive",
            "stale_after_s": SILENT_S,
        }
    )
