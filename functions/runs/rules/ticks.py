"""Ticks: their buckets, their source, and runs without any.

A bucket is a share of a run's budget at which runs are ranked.
"""

from __future__ import annotations

from state.errors import Invalid
from state.policy import BUCKETS, EARLY, Policy, TickSource
from state.records import Direction, Experiment

MOST_PROGRESS = 1.5
"""Largest progress that a tick may have, as a share of the budget. Extensions end before it."""
TOLERANCE = 0.05
"""Largest distance of a tick from its bucket, as a share of the budget."""
EARLY_TOLERANCE = 0.025
"""The same for the first bucket, where curves are steep."""
_ROUNDING = 1e-9
"""0.2 + 0.05 and 0.25 are not the same float."""


def bucket_of(progress: float) -> float | None:
    """The bucket of a tick with this progress; None between two buckets."""
    return next((bucket for bucket in BUCKETS if abs(progress - bucket) <= _tolerance(bucket)), None)


def is_first_in_bucket(progress: float, seen: set[float]) -> bool:
    """Whether no tick of this run was in its bucket before. `seen` holds the run's buckets; this one is added."""
    bucket = bucket_of(progress)
    if bucket is None or bucket in seen:
        return False
    seen.add(bucket)
    return True


def is_within_budget(progress: float) -> bool:
    """Whether a tick with this progress comes before any extension."""
    return progress <= BUCKETS[-1] + TOLERANCE + _ROUNDING


def _tolerance(bucket: float) -> float:
    return (EARLY_TOLERANCE if bucket == EARLY else TOLERANCE) + _ROUNDING


def check_source(policy: Policy, direction: Direction) -> None:
    """Raise Invalid for `tick_source: stdout`, which reads a loss, with a metric that is maximised."""
    if policy.stopping.tick_source == "stdout" and direction == "maximize":
        raise Invalid(
            "stopping.tick_source stdout reads a loss, of which lower is better, and this tag maximises its metric",
            hint="leave stopping.tick_source at report, and have train.py call report(metric, progress)",
        )


def last_value(last_metric: float | None, source: TickSource) -> float | None:
    """The last reported value of the tag's metric; None without a report, or where ticks carry a loss."""
    return last_metric if source == "report" else None


def is_silent(e: Experiment, policy: Policy) -> bool:
    """Whether a worker trained this run to its end without a tick. It could not be stopped early."""
    is_ranked = policy.stopping.rule != "none" and e.retest_of is None
    is_watched = e.attempt > 0 or e.worker_id is not None
    ran = is_watched and e.status in ("keep", "discard", "timeout")
    return is_ranked and ran and e.last_progress is None
