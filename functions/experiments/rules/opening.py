"""How a tag opens: its first strategy and policy, and its baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from state.ids import named_by, patch_id
from state.noise import unseeded
from state.policy import Policy
from state.records import NO_CHANGE, Experiment, Gpu, Idea, Strategy, Tag

# -- First strategy and policy of a new tag.

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
    """A swarm's tag. It has no base commit: each worker sets constants of its own train.py."""
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


# -- The baseline of a tag: a run of the base commit's own code, before all other runs of the lab.

LEAST_HASH = 7
"""Shortest hash that names a commit, in characters."""
SYSTEM = "nightjar"
"""Agent name of a baseline, which takes no other agent's turn."""


def owes_baseline(tag: Tag, policy: Policy) -> bool:
    """Whether a baseline has to run before the tag's first run; not once runs have finished.

    A stopped, lost or retracted baseline does not count: the next submit brings another.
    """
    is_new = tag.baseline_id is None and tag.total == 0
    return policy.baseline_first and is_new and tag.base_commit is not None


def is_base_code(
    tag: Tag, commit_sha: str, config_delta: dict[str, Any] | None, *, is_unpatched: bool
) -> bool:
    """Whether this is the base commit's own code, whatever its seed."""
    is_base = is_same_commit(tag.base_commit or "", commit_sha)
    return is_base and is_unpatched and not unseeded(config_delta)


def is_same_commit(one: str, other: str) -> bool:
    """Whether two hashes, either of which may be cut short, name one commit."""
    a, b = one.lower(), other.lower()
    return min(len(a), len(b)) >= LEAST_HASH and (a.startswith(b) or b.startswith(a))


def baseline_of(tag: str, base_commit: str) -> Idea:
    return Idea(
        tag=tag,
        hypothesis="The unchanged code: everything else is compared with it.",
        description="baseline",
        category="other",
        commit_sha=base_commit,
        diff_summary="nothing changed",
        diff_id=patch_id(NO_CHANGE),
        agent=SYSTEM,
        owner=SYSTEM,
    )


def waits_for_baseline(tag: Tag, experiment_id: str | None = None) -> bool:
    """Whether a run of this tag waits for the baseline's end; the baseline and its retests do not."""
    if not tag.awaits_baseline or tag.baseline_id is None:
        return False
    return experiment_id is None or named_by(experiment_id)[0] != tag.baseline_id


def repeats_due(baseline: Experiment, policy: Policy, free: Sequence[Gpu]) -> bool:
    """Whether the running baseline is repeated now on a free GPU, which would otherwise be idle until it ends."""
    is_under_way = baseline.status in ("leased", "running")
    fits = any(baseline.gpu_class in (None, gpu.gpu_name) for gpu in free)
    return is_under_way and fits and baseline.retests < policy.baseline_repeats
