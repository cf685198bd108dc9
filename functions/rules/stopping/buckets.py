"""Buckets: the points of a run at which its value is compared with those of other runs."""

from __future__ import annotations

from state.policy import BUCKETS

MOST_PROGRESS = 1.5
"""The largest share of its budget at which a run reports: extensions end before it."""
TOLERANCE = 0.05
"""How far from a bucket, as a share of the run, a tick still counts for it."""
_ROUNDING = 1e-9
"""0.2 + 0.05 and 0.25 are not the same float."""


def bucket_of(progress: float) -> float | None:
    """The bucket that a tick at this share of its run counts for; None: it lies between two."""
    nearest = min(BUCKETS, key=lambda bucket: abs(progress - bucket))
    return nearest if abs(progress - nearest) <= TOLERANCE + _ROUNDING else None


def is_within_budget(progress: float) -> bool:
    """Whether a tick at this share of its run is not yet of an extension."""
    return progress <= BUCKETS[-1] + TOLERANCE + _ROUNDING
