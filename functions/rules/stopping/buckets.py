"""Buckets: the points of a run at which its value is compared with those of other runs."""

from __future__ import annotations

from state.policy import BUCKETS, EARLY

MOST_PROGRESS = 1.5
"""The largest share of its budget at which a run reports: extensions end before it."""
TOLERANCE = 0.05
"""How far from a fifth, as a share of the run, a tick still counts for it."""
EARLY_TOLERANCE = 0.025
"""The same of the first bucket: curves are steep there."""
_ROUNDING = 1e-9
"""0.2 + 0.05 and 0.25 are not the same float."""


def bucket_of(progress: float) -> float | None:
    """The bucket that a tick at this share of its run counts for; None: it lies between two."""
    return next((bucket for bucket in BUCKETS if abs(progress - bucket) <= _around(bucket)), None)


def is_within_budget(progress: float) -> bool:
    """Whether a tick at this share of its run is not yet of an extension."""
    return progress <= BUCKETS[-1] + TOLERANCE + _ROUNDING


def _around(bucket: float) -> float:
    return (EARLY_TOLERANCE if bucket == EARLY else TOLERANCE) + _ROUNDING
