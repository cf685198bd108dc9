"""The books of a tag's budget: spent and reserved seconds and runs.

Sums are whole milliseconds, since adding floats loses bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from state.records import OPEN, Experiment, Status

WARN_AT = 0.8
"""Share of a budget's limit, spent or reserved, at which one warning event is sent."""
REPORTED: frozenset[Status] = frozenset(
    {"keep", "discard", "crash", "timeout", "invalid", "retracted", "measured"}
)
"""Final statuses that follow from a reported result or crash."""
SET_ASIDE: frozenset[Status] = frozenset({"queued", "leased", "running"})
"""While Nightjar has an experiment to train, `budget_s` seconds and one run are set aside for it, and more seconds as
its run outlasts them in a tag whose GPU seconds are limited."""


@dataclass(frozen=True)
class Books:
    """Milliseconds of GPU time and runs."""

    reserved_ms: int = 0
    reserved_runs: int = 0
    spent_ms: int = 0
    spent_runs: int = 0

    def __add__(self, other: Books) -> Books:
        return Books(
            self.reserved_ms + other.reserved_ms,
            self.reserved_runs + other.reserved_runs,
            self.spent_ms + other.spent_ms,
            self.spent_runs + other.spent_runs,
        )


def milliseconds(seconds: float) -> int:
    """Whole milliseconds, rounded as the scripts round."""
    return math.floor(seconds * 1000 + 0.5)


def in_seconds(ms: int) -> str:
    """Milliseconds as a Redis hash holds them: seconds with three decimals."""
    return f"{ms / 1000:.3f}"


def books_of(e: Experiment, attempts: Mapping[int, Mapping[str, str]]) -> Books:
    """The part of one experiment in its tag's books.

    Seconds spent: for runs that Nightjar trained, the time from start to end of every ended attempt, lost ones too,
    by Redis' clock. For runs of agents and of swarms' workers, which have no attempt, the reported
    `training_seconds`. Runs spent: one for a finished experiment with a started attempt or a reported result.
    Reserved: `reserved_gpu_seconds` and one run of an open experiment. A retry needs no more than the first attempt
    had.
    """
    over = e.status not in OPEN
    held = e.reserved_gpu_seconds
    if e.attempt == 0:
        ran = is_spent(e.status, e.training_seconds)
        spent = milliseconds(e.training_seconds or 0.0) if ran else 0
    else:
        ran = over and any("started_at" in attempt for attempt in attempts.values())
        spent = sum(lasted(attempt) for attempt in attempts.values())
    return Books(
        reserved_ms=milliseconds(held) if held is not None else 0,
        reserved_runs=int(held is not None),
        spent_ms=spent,
        spent_runs=int(ran),
    )


def is_spent(status: Status, training_seconds: float | None) -> bool:
    """Whether a run without an attempt counts as spent: its result was reported, or a swarm's worker was stopped."""
    return status in REPORTED or (status == "stopped" and training_seconds is not None)


def lasted(attempt: Mapping[str, str]) -> int:
    """Milliseconds from an attempt's start to its end; 0 where it never began, or has not ended."""
    return between(attempt.get("started_at"), attempt["ended_at"]) if "ended_at" in attempt else 0


def between(started: str | None, ended: str | float) -> int:
    """Milliseconds from a start to an end, as they are stored; 0 where it never began."""
    return max(milliseconds(float(ended) - float(started)), 0) if started else 0
