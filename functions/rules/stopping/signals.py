"""Which runs report nothing, in a tag whose early stopping lives by reports."""

from __future__ import annotations

from state.policy import Policy
from state.records import Experiment


def is_silent(e: Experiment, policy: Policy) -> bool:
    """Whether a worker, of the lab or of a swarm, has trained it to its end without a report.

    Its tag could not stop it early.
    """
    is_ranked = policy.stopping.rule != "none" and e.retest_of is None
    is_watched = e.attempt > 0 or e.worker_id is not None
    ran = is_watched and e.status in ("keep", "discard", "timeout")
    return is_ranked and ran and e.last_progress is None
