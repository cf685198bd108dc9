"""Comparing one run with the best: keep, discard or near miss, and which runs are comparable."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

from state.errors import Invalid
from state.records import Direction, Experiment, Tag, score

TOLERANCE = 1e-9
"""Margins include both ends up to this: 0.995 - 0.993 is not 0.002 in binary."""
LARGEST = 1e100
"""Differences of such values are still finite."""
NO_VALUE = (
    "a run without a result is a crash: POST /api/experiment/crash; a swarm's worker sends `error`, no value"
)
"""Remedy for a report without a result."""


@dataclass(frozen=True)
class KeepVerdict:
    """Fields of a verdict that follow from a value and a best. A judgement sets them all."""

    improved: bool
    delta: float
    """Gain over the best: positive is better, 0 without a best."""
    near_miss: bool

    @property
    def status(self) -> Literal["keep", "discard"]:
        return "keep" if self.improved else "discard"


FIRST = KeepVerdict(improved=True, delta=0.0, near_miss=False)
"""Without a best, any value is kept."""
NOT_COMPARED = KeepVerdict(improved=False, delta=0.0, near_miss=False)


def judge(
    value: float, best: float | None, direction: Direction, margin: float, *, improved: bool | None = None
) -> KeepVerdict:
    """Compare a value with the best. `improved`: decided by retests. A discard within the margin is a near miss."""
    if best is None:
        return FIRST
    points, middle = score(value, direction), score(best, direction)
    delta = middle - points
    is_better = delta > 0 if improved is None else improved
    low, high = _near(middle, margin)
    return KeepVerdict(is_better, delta, near_miss=not is_better and low <= points <= high)


def is_near(value: float, best: float, direction: Direction, margin: float) -> bool:
    """Whether a discard with this value is a near miss of the best."""
    low, high = near_band(best, direction, margin)
    return low <= score(value, direction) <= high


def near_band(best: float, direction: Direction, margin: float) -> tuple[float, float]:
    """Scores (lower = better) of near misses: within the margin, inclusive; only what was demoted beats the best."""
    return _near(score(best, direction), margin)


def _near(middle: float, margin: float) -> tuple[float, float]:
    return middle - margin - TOLERANCE, middle + margin + TOLERANCE


def check_plausible(metric: str, value: float) -> None:
    """Raise Invalid for a value that no run can have: not finite, out of all proportion, or not positive bpb."""
    if not math.isfinite(value):
        raise Invalid(f"{metric} is {value!r}: only finite numbers are results", hint=NO_VALUE)
    if abs(value) > LARGEST:
        raise Invalid(f"{metric} is {value!r}: no run measures that", hint=NO_VALUE)
    if metric == "val_bpb" and value <= 0:
        raise Invalid(f"val_bpb is {value!r}: bits per byte are greater than 0", hint=NO_VALUE)


def is_plausible(metric: str, value: float) -> bool:
    """Whether a run can have measured this value."""
    try:
        check_plausible(metric, value)
    except Invalid:
        return False
    return True


class Key(NamedTuple):
    """Comparability key: runs of a tag are compared if these agree. None: not known yet, or not given."""

    gpu_class: str | None = None
    evaluator_hash: str | None = None
    budget_seconds: float | None = None

    @property
    def text(self) -> str:
        """A short name for Redis keys."""
        whole = f"{self.gpu_class}|{self.evaluator_hash}|{self.budget_seconds!r}"
        return hashlib.sha256(whole.encode()).hexdigest()[:16]


UNKNOWN = Key()


def main_key(tag: Tag) -> Key:
    return Key(tag.key_gpu_class, tag.key_evaluator_hash, tag.key_budget_seconds)


def key_of(e: Experiment) -> Key:
    return Key(e.gpu_class, e.evaluator_hash, e.budget_seconds)


def compare(main: Key, run: Key) -> tuple[Key, bool]:
    """The run's key, completed from the tag's main key, and whether the two agree."""
    if run == UNKNOWN:
        return main, True
    whole = Key(
        run.gpu_class if run.gpu_class is not None else main.gpu_class,
        run.evaluator_hash if run.evaluator_hash is not None else main.evaluator_hash,
        run.budget_seconds if run.budget_seconds is not None else main.budget_seconds,
    )
    return whole, contradiction(main, run) == UNKNOWN


def contradiction(main: Key, run: Key) -> Key:
    """The parts of a run's key that differ from the tag's main key.

    Runs with the same contradiction compete with each other. It stays the same while the main key learns other parts.
    """
    return Key(
        run.gpu_class if main.gpu_class not in (None, run.gpu_class) else None,
        run.evaluator_hash if main.evaluator_hash not in (None, run.evaluator_hash) else None,
        run.budget_seconds if main.budget_seconds not in (None, run.budget_seconds) else None,
    )


def should_abort(crashes_in_a_row: int, limit: int) -> bool:
    """Whether so many crashes in a row mean that something is broken for all runs."""
    return crashes_in_a_row >= limit
