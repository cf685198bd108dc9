"""Trends: how well the rank of a run at a bucket has predicted its final rank."""

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
"""Fewest runs from which a correlation is computed."""
_NORMAL = NormalDist()
_MOST = 0.999
"""Largest correlation: 1 only means too few runs."""


@dataclass(frozen=True)
class Correlation:
    """Bounds of the correlation between the place at a bucket and the final place, among all runs at the bucket."""

    low: float
    high: float


def score_of(place: float) -> float:
    """The normal score of a place: 0 in the middle, positive in the better half."""
    return _NORMAL.inv_cdf(place)


def terms(u: float, v: float) -> Trend:
    """Contribution to a trend of a run with the score `u` at the bucket and `v` at its end."""
    return Trend(1.0, u, v, u * u, v * v, u * v)


def together(first: Trend, second: Trend) -> Trend:
    """The sum of two trends."""
    return Trend(*(a + b for a, b in zip(astuple(first), astuple(second), strict=True)))


def correlation(trend: Trend, *, doubt: float, hope: float) -> Correlation | None:
    """Bounds: `doubt` standard errors (of Fisher's z) below the correlation, `hope` above; None for too few runs.

    Stopped runs have no final rank. So the runs that ended differ less at the bucket than all runs did, and correlate
    less. Thorndike's formula corrects that (Personnel Selection, 1949, case 2). It needs only the variance of the
    runs that ended, because normal scores of all runs have the variance 1.
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
    """Correlation among all runs, from that among runs whose spread at the bucket is `narrower` times smaller."""
    return r * narrower / math.sqrt(1 - r * r + r * r * narrower * narrower)


def learnt(e: Experiment, value: float, ends: Peers | None, direction: Direction) -> Learnt | None:
    """What a trend learns from the end of a run; None if the run was never ranked.

    `value` is what the run is judged by: for an extended run, its value at the end of the normal budget.
    """
    if ends is None or not e.places:
        return None
    v = score_of(standing(direction, lower=ends.lower, equal=ends.equal, peers=ends.runs).place)
    return Learnt(value, v, told_by(e.places, v))


def told_by(places: Mapping[str, float], v: float) -> Mapping[str, Trend]:
    """Contribution of a run to the trend of each bucket: `places` are its scores there, `v` its final score."""
    return {bucket: terms(u, v) for bucket, u in places.items()}
