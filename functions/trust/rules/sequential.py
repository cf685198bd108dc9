"""Sequential test of paired gains: an e-value after each pair, and the decision that follows from it.

The null hypothesis is that the candidate gains no more than the margin. At the margin its run and the reference's,
moved by the margin, may change places. Their difference is then symmetric about 0, whatever the noise: its sign is a
fair coin, given all absolute differences. The e-value is the wealth of a player who bets on the sign of each pair.
The stake grows with the size of the difference beside the mean size so far, as the likelihood ratio of normal noise
does: 2 / (1 + exp(-2 bet gain / scale)). The wealth is the mean over several bets. It is a test martingale, so by
Ville's inequality it reaches 1 / alpha with a probability of at most alpha, however often one looks. No variance, no
normal noise and no finite moment is assumed; for gains below the margin, noise with one peak. A pair at most doubles
the wealth: alpha = 0.01 takes 7 pairs or more.

Sources: Efron (1969), Student's t-test under symmetry conditions; de la Pena (1999), A general class of exponential
inequalities for martingales and ratios; Ramdas et al. (2020), Admissible anytime-valid sequential inference must rely
on nonnegative martingales, on tests of symmetry; Ramdas and Wang (2024), Hypothesis testing with e-values. The stop
without hope is the lower boundary of Wald's sequential test (1945). A stop can only lower the false rate.

This file needs the standard library alone: certificates carry it in their verify.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

BETS = (1.0, 2.0, 4.0, 8.0)
HOPELESS = 0.02
"""The e-value at which a candidate is refused. About this share of good candidates is lost by it."""
ROUNDING = 1e-9
"""Relative difference of two values that counts as none."""


def paired_gain(reference: float, candidate: float, min_gain: float) -> float:
    """Gain of a pair above the margin, both values as scores: lower is better."""
    gain = reference - candidate - min_gain
    return 0.0 if abs(gain) <= ROUNDING * max(abs(reference), abs(candidate), min_gain) else gain


def e_values(gains: Iterable[float]) -> list[float]:
    """The e-value after each pair."""
    found, total = list[float](), 0.0
    logs = [0.0] * len(BETS)
    for n, gain in enumerate(gains, 1):
        total += abs(gain)
        size = gain * n / total if total else 0.0
        logs = [log + _log_factor(2 * bet * size) for log, bet in zip(logs, BETS, strict=True)]
        found.append(sum(map(math.exp, logs)) / len(logs))
    return found


def _log_factor(stake: float) -> float:
    """Logarithm of 2 / (1 + exp(-stake))."""
    return math.log(2) + min(stake, 0.0) - math.log1p(math.exp(-abs(stake)))


def decided(gains: Sequence[float], alpha: float, most_pairs: int) -> tuple[str, float]:
    """The state after these pairs, looked at after each, and its e-value.

    `certified`, `refused` (no hope), `inconclusive` (the pairs left cannot decide it) or `running`.
    """
    e = 1.0
    for n, e in enumerate(e_values(gains), 1):
        if e * alpha >= 1:
            return "certified", e
        if e <= HOPELESS:
            return "refused", e
        if e * alpha * 2.0 ** (most_pairs - n) < 1:
            return "inconclusive", e
    return "running", e
