"""Stopping rules: each returns the probability with which a run is stopped at a bucket.

`adaptive` cuts harder the better ranks at a bucket have predicted final ranks. It measures that correlation among
the runs that ended. It bounds a run's chances by Cantelli's inequality, which holds for any distribution: real runs
recover more often than a normal distribution predicts. Where curves cross until late, the correlation is low and
stops nothing. There most of the worst third are stopped within the first two fifths: such runs seldom end well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import NormalDist

from functions.rules.stopping.ranks import PeerRank
from functions.rules.stopping.trends import correlation, score_of
from state.policy import FIFTHS, Stopping, StoppingRule

Stopper = Callable[[PeerRank, float, Stopping], float]
"""Takes a run's rank, its bucket and the tag's settings; returns the probability of a stop, 0 to 1."""


def stochastic(standing: PeerRank, bucket: float, settings: Stopping) -> float:
    """Probability that falls linearly from `max_prob` at rank 0 to 0 at the percentile 100 / eta (33.3)."""
    threshold = round(100 / settings.eta, 1)
    return settings.max_prob * max(0.0, threshold - standing.rank) / threshold


def median(standing: PeerRank, bucket: float, settings: Stopping) -> float:
    """The median rule of Google Vizier (Golovin et al. 2017): stop what is worse than half of its peers."""
    return 1.0 if standing.rank < 50 else 0.0


def asha(standing: PeerRank, bucket: float, settings: Stopping) -> float:
    """Asynchronous successive halving (Li et al. 2020): at each rung only the best 1 / eta go on."""
    cut = standing.better >= standing.peers / settings.eta
    return 1.0 if bucket in rungs(settings.eta) and cut else 0.0


def none(standing: PeerRank, bucket: float, settings: Stopping) -> float:
    """Stop nothing."""
    return 0.0


def rungs(eta: float) -> frozenset[float]:
    """The fifths nearest to the shares 1 / eta, 1 / eta^2, ... of a run, down to the first."""
    found: set[float] = set()
    share = 1 / eta
    while FIFTHS[0] not in found:
        found.add(min(FIFTHS, key=lambda bucket: abs(bucket - share)))
        share /= eta
    return frozenset(found - {FIFTHS[-1]})


TOP = 0.05
"""Share of all runs, the best ones, that shall survive."""
FEW = 10
"""Most runs that shall survive. A search improves: a share alone would spare nearly every late run."""
RISK = 0.741
"""A run is stopped if its bound on the chance to survive is below this share of the bound at correlation 0.

Cantelli's bound is for the worst distribution. For others the chance is at most a tenth of it."""
DOUBT = 1.5
"""Standard errors subtracted from the measured correlation."""
HOPE = 2.0
"""Standard errors added to it, to ask whether a correlation above 0 is possible."""
SURE = 0.98
"""Probability of a stop for a run that will hardly end among the best."""
UNSURE = 0.8
"""Probability of a stop for one of the worst runs where its rank predicts little."""
UNSURE_UNTIL = 0.4
"""Last bucket at which UNSURE applies: later there is less to save."""


def adaptive(standing: PeerRank, bucket: float, settings: Stopping) -> float:
    """Stop runs that will hardly end among the best, by the measured correlation.

    A run that was spared once goes on to its end: the correlation needs final ranks of low runs, too.
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
    """Place, 0 (worst) to 1, above which no run is stopped. It rises with the bucket: fewer late bloomers are left.

    `top` is the share of all runs that shall survive.
    """
    return 1 - max(0.475 - 0.75 * bucket, 0.15) * top / TOP


def hardly_ends_well(u: float, r: float, top: float) -> bool:
    """Whether a run of normal score `u` will hardly end among the best, at correlation `r`.

    The final score has the mean r * u and the variance 1 - r * r. The chance that it reaches `aim` is at most
    variance / (variance + distance ** 2): Cantelli, Atti Congr. Int. Mat. 1928. At r = 0 that is 1 / (1 + aim ** 2).
    """
    aim = NormalDist().inv_cdf(1 - top)
    spread, distance, risk = 1 - r * r, aim - r * u, RISK / (1 + aim * aim)
    return r > 0 and distance > 0 and spread < risk * (spread + distance * distance)


STOPPERS: Mapping[StoppingRule, Stopper] = {
    "none": none,
    "stochastic": stochastic,
    "median": median,
    "asha": asha,
    "adaptive": adaptive,
}
"""By the name in the policy."""


def looks_at(rule: StoppingRule, bucket: float) -> bool:
    """Whether runs are ranked at this bucket: the published rules use fifths, `adaptive` an earlier one, too."""
    return rule == "adaptive" or (rule != "none" and bucket in FIFTHS)
