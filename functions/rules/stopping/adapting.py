"""The rule `adaptive`: it stops the more runs, the better their values at a bucket have foretold how runs end.

A run is stopped where it will hardly end among the best `TOP` of all runs. Its place at the bucket foretells its end,
by the correlation between both among the runs that have ended. How far the end may be from that is bounded by
Cantelli's inequality, for any distribution: real runs recover more often than a normal distribution has it.

Where curves cross until late, that stops no run. There most of the worst third of the runs are stopped within their
first two fifths: a run that stands so low so early is seldom among the best in the end, even where the order of the
others foretells nothing.
"""

from __future__ import annotations

from statistics import NormalDist

from functions.rules.stopping.ranks import Standing
from functions.rules.stopping.trends import correlation, score_of
from state.policy import Stopping

TOP = 0.05
"""Share of all runs, the best ones, that are to live."""
FEW = 10
"""Most runs that are to live. A search improves: a share of all runs would spare nearly every late one."""
RISK = 0.741
"""Bound of the chance to end among them, below which a run is stopped, as a share of the bound where nothing is
foretold. Cantelli's is for the worst distribution: for others the chance is a tenth of that, and less."""
DOUBT = 1.5
"""Standard errors by which the correlation is taken to be lower than it was measured."""
HOPE = 2.0
"""Standard errors above the measured one within which a correlation above 0 is possible."""
SURE = 0.98
"""Probability with which a run is stopped that hardly ends among the best."""
UNSURE = 0.8
"""Probability with which one of the worst runs is stopped where its place foretells little."""
UNSURE_UNTIL = 0.4
"""The last bucket at which it is: later there is less to save."""


def adaptive(standing: Standing, bucket: float, settings: Stopping) -> float:
    """Stop what hardly ends among the best, by the correlation that was measured.

    A run that was spared goes on to its end: the trend needs ends of runs that stood low, too.
    """
    known = correlation(standing.trend, doubt=DOUBT, hope=HOPE)
    top = min(TOP, FEW / (standing.peers + standing.stopped + 1))
    if known is None or standing.was_spared or standing.place > most(bucket, top):
        return 0.0
    if hardly_ends_well(score_of(standing.place), known.low, top):
        return SURE
    is_worst = standing.place < 1 / settings.eta
    return UNSURE if is_worst and bucket <= UNSURE_UNTIL and known.high > 0 else 0.0


def most(bucket: float, top: float = TOP) -> float:
    """The place, 0 (worst) to 1, from which on no run is stopped: it rises, as few late bloomers are left.

    `top` is the share of all runs that is to live.
    """
    return 1 - max(0.475 - 0.75 * bucket, 0.15) * top / TOP


def hardly_ends_well(u: float, r: float, top: float) -> bool:
    """Whether a run of the normal score `u` hardly ends among the best, where `r` is the correlation.

    With the mean r * u and the variance 1 - r * r, the chance to reach the score `aim` is at most variance /
    (variance + distance ** 2): Cantelli, Atti Congr. Int. Mat. 1928. Where r is 0 that is 1 / (1 + aim ** 2).
    """
    aim = NormalDist().inv_cdf(1 - top)
    spread, distance, risk = 1 - r * r, aim - r * u, RISK / (1 + aim * aim)
    return r > 0 and distance > 0 and spread < risk * (spread + distance * distance)
