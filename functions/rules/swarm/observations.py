"""What the runs of a tag say of their configs, measured so that no single result decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from state.records import Dimension, Value

SPREAD = 0.02
"""The scores' robust standard deviation, whatever the metric: about that of val_bpb between configs."""
MOST_APART = 3.0
LIMIT = SPREAD * MOST_APART
"""Scores lie at most that far from the median's, so that a result of 1e300 is one bad result."""
LARGEST = 1e300
"""Larger results count as this one: a difference of two of them is finite."""
NORMAL = 1.4826
"""A normal distribution's standard deviation over its median absolute deviation."""


@dataclass(frozen=True)
class Observation:
    """One run: what was set, and what came of it."""

    config: Mapping[str, Value]
    value: float | None
    """The judged delta, lower is better, finite; None: it crashed or is pending."""
    pending: bool = False
    """It has not ended."""


@dataclass(frozen=True)
class Scores:
    """Runs as scores: 0 is the median result, lower is better."""

    each: Sequence[float]
    """In the order of the observations."""
    mean: float
    """Of the runs that ended."""


def value_in(config: Mapping[str, Value], dimension: Dimension) -> Value | None:
    """What a run had of a dimension: its config's value, else that of every train.py; None: that is not known."""
    return config.get(dimension.name, dimension.default_value)


def scored(observations: Sequence[Observation]) -> Scores:
    """The score of each observation, from -LIMIT to LIMIT.

    A crash is as bad as a score can be. A pending run counts as the mean of those that ended (constant liar;
    Ginsbourger et al. 2010), so that the next proposals look elsewhere.
    """
    scale = Scale.of([o.value for o in observations if is_finished(o) and o.value is not None])
    ended = {
        n: LIMIT if seen.value is None else scale.score(seen.value)
        for n, seen in enumerate(observations)
        if not seen.pending
    }
    mean = fmean(ended.values()) if ended else 0.0
    return Scores([ended.get(n, mean) for n in range(len(observations))], mean)


def is_finished(seen: Observation) -> bool:
    """Whether the run went on to its end and has a value."""
    return seen.value is not None and not seen.pending


def shrunk(total: float, n: int, mean: float, weight: float) -> float:
    """The mean of `n` scores with this sum, drawn to the overall mean as if `weight` more runs had had it."""
    return (total + weight * mean) / (n + weight)


@dataclass(frozen=True)
class Scale:
    """How far apart results usually are."""

    middle: float
    spread: float
    """The standard deviation that a normal distribution would have; 0: all are equal."""

    @classmethod
    def of(cls, values: Sequence[float]) -> Scale:
        """Median and median absolute deviation; of the deviations that are not 0, where most results are equal."""
        if not values:
            return cls(0.0, 0.0)
        bounded = [_bounded(value) for value in values]
        middle = median(bounded)
        apart = [abs(value - middle) for value in bounded]
        usual = median(apart) or median([a for a in apart if a] or [0.0])
        return cls(middle, NORMAL * usual)

    def score(self, value: float) -> float:
        return SPREAD * self.apart(value, MOST_APART)

    def apart(self, value: float, most: float) -> float:
        """How many spreads a value lies above the middle, from `-most` to `most`."""
        if not self.spread:
            return 0.0 if value == self.middle else most if value > self.middle else -most
        return min(max((_bounded(value) - self.middle) / self.spread, -most), most)


def _bounded(value: float) -> float:
    return min(max(value, -LARGEST), LARGEST)
