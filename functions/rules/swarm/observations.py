"""Observations of a tag's runs as robust scores: no single result decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from state.records import Dimension, Value

SPREAD = 0.02
"""Robust standard deviation of the scores for any metric; about that of val_bpb between configs."""
MOST_APART = 3.0
LIMIT = SPREAD * MOST_APART
"""Largest distance of a score from 0. A result of 1e300 is one bad result."""
LARGEST = 1e300
"""Limit of results: differences stay finite."""
NORMAL = 1.4826
"""A normal distribution's standard deviation over its median absolute deviation."""


@dataclass(frozen=True)
class Observation:
    """One run: its config and its result."""

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
    """A run's value of a dimension: from its config, else the default; None if unknown."""
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
    """Whether the run ended with a value."""
    return seen.value is not None and not seen.pending


def shrunk(total: float, n: int, mean: float, weight: float) -> float:
    """Mean of `n` scores with this sum, shrunk to the overall mean as if `weight` more runs had it."""
    return (total + weight * mean) / (n + weight)


@dataclass(frozen=True)
class Scale:
    """Centre and spread of results."""

    middle: float
    spread: float
    """Robust standard deviation; 0: all results are equal."""

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
