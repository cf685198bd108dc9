"""The baseline of a tag: the base commit's own code, which is run before anything else that the lab trains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from state.ids import named_by
from state.policy import Policy
from state.records import Experiment, Gpu, Idea, Tag
from state.seeds import unseeded

LEAST_HASH = 7
"""Characters that name a commit."""
SYSTEM = "nightjar"
"""The agent that a baseline is of: it takes no other agent's turn."""


def owes_baseline(tag: Tag, policy: Policy) -> bool:
    """Whether its baseline has to come before its first run; a tag in which runs have finished has its own.

    One that was stopped, lost or retracted is none: the next submit brings another.
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
    """What the system submits as the tag's baseline."""
    return Idea(
        tag=tag,
        hypothesis="The unchanged code: everything else is compared with it.",
        description="baseline",
        category="other",
        commit_sha=base_commit,
        diff_summary="nothing changed",
        agent=SYSTEM,
        owner=SYSTEM,
    )


def waits_for_baseline(tag: Tag, experiment_id: str | None = None) -> bool:
    """Whether a run of this tag waits for the baseline's end; the baseline and its retests do not."""
    if not tag.awaits_baseline or tag.baseline_id is None:
        return False
    return experiment_id is None or named_by(experiment_id)[0] != tag.baseline_id


def repeats_due(baseline: Experiment, policy: Policy, free: Sequence[Gpu]) -> bool:
    """Whether one more run of it begins now, on a GPU that would stand idle until it has ended."""
    is_under_way = baseline.status in ("leased", "running")
    fits = any(baseline.gpu_class in (None, gpu.gpu_name) for gpu in free)
    return is_under_way and fits and baseline.retests < policy.baseline_repeats
