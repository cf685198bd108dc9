"""Rules of early stopping: each answers with which probability a run is stopped at a bucket."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from functions.rules.stopping.adapting import adaptive
from functions.rules.stopping.ranks import Standing
from state.policy import FIFTHS, Stopping, StoppingRule

Stopper = Callable[[Standing, float, Stopping], float]
"""Of a run's standing, its bucket and the tag's settings: the probability with which it is stopped, 0 to 1."""


def stochastic(standing: Standing, bucket: float, settings: Stopping) -> float:
    """Mostly spare the bad: linear from `max_prob` at rank 0 to nothing at the percentile 100 / eta (33.3)."""
    threshold = round(100 / settings.eta, 1)
    return settings.max_prob * max(0.0, threshold - standing.rank) / threshold


def median(standing: Standing, bucket: float, settings: Stopping) -> float:
    """The median rule of Google Vizier (Golovin et al. 2017): stop what is worse than half of its peers."""
    return 1.0 if standing.rank < 50 else 0.0


def asha(standing: Standing, bucket: float, settings: Stopping) -> float:
    """Asynchronous successive halving (Li et al. 2020): at each rung only the best 1 / eta go on."""
    cut = standing.better >= standing.peers / settings.eta
    return 1.0 if bucket in rungs(settings.eta) and cut else 0.0


def none(standing: Standing, bucket: float, settings: Stopping) -> float:
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


STOPPERS: Mapping[StoppingRule, Stopper] = {
    "none": none,
    "stochastic": stochastic,
    "median": median,
    "asha": asha,
    "adaptive": adaptive,
}
"""By their name in the policy."""


def looks_at(rule: StoppingRule, bucket: float) -> bool:
    """Whether runs are ranked at this bucket: by the published rules at fifths, by `adaptive` earlier, too."""
    return rule == "adaptive" or (rule != "none" and bucket in FIFTHS)
