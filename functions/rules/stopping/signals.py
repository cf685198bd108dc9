"""Which runs report nothing, in a tag whose early stopping lives by reports."""

from __future__ import annotations

from state.policy import Policy
from state.records import Experiment


def is_silent(e: Experiment, policy: Policy) -> bool:
    """Whether a worker has trained it to its end without a report, so that its tag could not stop it early."""
    is_ranked = policy.stopping.rule != "none" and e.retest_of is None
    ran = e.attempt > 0 and e.status in ("keep", "discard", "timeout")
    return is_ranked and ran and e.last_progress is None
