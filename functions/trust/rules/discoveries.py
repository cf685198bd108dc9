"""Keeps whose gains hold at a false discovery rate, whenever one looks.

The keeps up to the best are tested in their order. The null hypothesis of a keep: it is no better than the newest
earlier keep that holds, at first the baseline. Its e-value comes from further runs of both on the same seeds. First
runs count for nothing, because a keep is chosen for its first run.

A keep holds if its e-value reaches 1 / (rate * weight * (1 + earlier keeps that hold)). This is e-LOND, the online
form of e-BH. Sources: Xu and Ramdas (2024), Online multiple testing with e-values; Wang and Ramdas (2022), False
discovery rate control with e-values. Each false keep adds at most rate * weight * e-value to the false share. The
weights of all hypotheses sum to 1, and an e-value has a mean of at most 1. So the expected share is at most the rate
even if e-values depend on each other, as those of keeps with common runs do. An e-value may be computed anew after
each run, so the statement may be read at any time.

Demoted keeps and discards that ran again take a weight each, with an e-value of 0. So nothing is gained by showing
only the keeps that survived their further runs. A keep that others are compared with had good further runs: its luck
counts against the others. `bench/fdr.py` measures the false share.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from functions.experiments.rules.gains import Gain
from state.facts import Noise

RATE = 0.1
USUAL = 4.0
"""Standard deviation of the gains that the e-value bets on, in sigmas of one run. Other gains take more runs."""
SPREAD = 10
"""Hypotheses that share half of the weights: `weight` falls slowly until then."""


def e_value(gain: float, pairs: int, noise: Noise) -> float:
    """Evidence of `pairs` pairs of runs, with this mean gain, against a true gain of 0 or less.

    It is a Bayes factor for normal noise. The prior of sigma is 1 / sigma, that of the gain |N(0, USUAL)| sigmas. Its
    mean under the null hypothesis is at most 1, at any stop, however few repeats have measured sigma. A gain of 0 or
    less gives 0. Sources: Lai (1976), On confidence sequences; Perez-Ortiz et al. (2024), E-statistics, group
    invariance and anytime-valid testing; Wang and Ramdas (2025), Anytime-valid t-tests and confidence sequences for
    Gaussian means with unknown variance.
    """
    if gain <= 0 or pairs < 1:
        return 0.0
    from scipy.special import stdtr  # here, because it takes most of a second to import

    runs, df = (
        pairs / 2,
        noise.df,
    )  # a difference of two means of `pairs` runs varies like the mean of `runs` runs
    squares, of_gain, prior = df * noise.sigma**2, runs * gain**2, USUAL**2
    shrinks = 1 + runs * prior
    rest = squares + of_gain / shrinks
    log_factor = ((df + 1) * math.log((squares + of_gain) / rest) - math.log(shrinks)) / 2
    centre = gain * math.sqrt(runs * (shrinks - 1) / shrinks * (df + 1) / rest)
    return 2 * float(stdtr(df + 1, centre)) * math.exp(min(log_factor, 600.0))


def weight(place: int) -> float:
    """Share of the rate for the hypothesis at this place, from 1. All shares sum to 1."""
    return SPREAD / ((place + SPREAD - 1) * (place + SPREAD))


def discoveries(
    begin: str,
    keeps: Iterable[tuple[str, int]],
    gain_over: Callable[[str, str], Gain | None],
    noise: Noise,
    rate: float = RATE,
) -> list[str]:
    """The keeps that hold, oldest first: each is better than the one before it, and the first than `begin`.

    `keeps` are the later ones up to the best, with their places among all that were kept once or ran again.
    `gain_over` compares two on the same seeds, and `noise` is that of runs on one seed.
    """
    found = list[str]()
    for name, place in keeps:
        gain = gain_over(found[-1] if found else begin, name)
        evidence = e_value(gain.by, gain.runs, noise) if gain else 0.0
        if evidence * rate * weight(place) * (1 + len(found)) >= 1:
            found.append(name)
    return found
