"""Trends: how well the place of a run at a bucket has foretold the place at which it ends."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from statistics import NormalDist

from functions.rules.stopping.ranks import standing
from state.decisions import Learnt
from state.facts import Peers, Trend
from state.records import Direction, Experiment

LEAST_RUNS = 15
"""Runs without which a trend tells nothing."""
_NORMAL = NormalDist()
_MOST = 0.999
"""A correlation of 1 is of too few runs."""


@dataclass(frozen=True)
class Correlation:
    """Between a run's place at a bucket and its place at the end, among all runs that came to the bucket."""

    low: float
    """The least that is likely."""
    high: float
    """The most that is possible."""


def score_of(place: float) -> float:
    """A place as its normal score: 0 in the middle, above 0 the better half."""
    return _NORMAL.inv_cdf(place)


def terms(u: float, v: float) -> Trend:
    """What a run adds to a trend that had the score `u` at the bucket, and `v` at its end."""
    return Trend(1.0, u, v, u * u, v * v, u * v)


def together(first: Trend, second: Trend) -> Trend:
    """The sums of both."""
    return Trend(*(a + b for a, b in zip(astuple(first), astuple(second), strict=True)))


def correlation(trend: Trend, *, doubt: float, hope: float) -> Correlation | None:
    """Bounds of the correlation, so many standard errors off it; None: too few runs tell.

    Runs that were stopped have no end, so those that tell differ less at the bucket than all that came to it, and
    correlate less. Normal scores of all have the variance 1, so Thorndike's formula for that (Personnel Selection,
    1949, case 2) needs nothing but the variance of those that tell. The standard error is that of Fisher's z.
    """
    n = trend.runs
    if n < LEAST_RUNS:
        return None
    of_u, of_v = trend.uu / n - (trend.u / n) ** 2, trend.vv / n - (trend.v / n) ** 2
    if min(of_u, of_v) < 1e-9:
        return None
    found = (trend.uv / n - trend.u * trend.v / n**2) / math.sqrt(of_u * of_v)
    z, error = math.atanh(max(-_MOST, min(_MOST, found))), 1 / math.sqrt(n - 3)
    low, high = (math.tanh(z + errors * error) for errors in (-doubt, hope))
    narrower = max(1.0, 1 / math.sqrt(of_u))
    return Correlation(*(max(-_MOST, min(_MOST, _of_all(r, narrower))) for r in (low, high)))


def _of_all(r: float, narrower: float) -> float:
    """The correlation among all, of that among runs whose spread at the bucket is so many times narrower."""
    return r * narrower / math.sqrt(1 - r * r + r * r * narrower * narrower)


def learnt(e: Experiment, value: float, ends: Peers | None, direction: Direction) -> Learnt | None:
    """What the end of a run tells, with a value that it is judged by; None: it was ranked nowhere.

    Of an extended run that is what it had at the end of its own budget.
    """
    if ends is None or not e.places:
        return None
    v = score_of(standing(direction, lower=ends.lower, equal=ends.equal, peers=ends.runs).place)
    return Learnt(value, v, told_by(e.places, v))


def told_by(places: Mapping[str, float], v: float) -> Mapping[str, Trend]:
    """What a run with these scores at its buckets adds to their trends, by ending with the score `v`."""
    return {bucket: terms(u, v) for bucket, u in places.items()}
