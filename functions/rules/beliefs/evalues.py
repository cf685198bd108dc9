"""E-values: evidence that stays valid however often one looks at it.

A verdict that is hard to undo needs one of them. The posterior alone, looked at after every run, decides many claims
of which nothing is true.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

ENOUGH = 20.0
"""An e-value that is enough for a verdict: at most 1 in 20 claims whose null hypothesis holds ever reach it."""


@dataclass(frozen=True)
class EValues:
    """What a hypothesis' outcomes are worth against its two null hypotheses."""

    supported: float
    """Against theta <= 0.5."""
    refuted: float
    """Against theta >= 0.5."""


def e_values(wins: int, losses: int, stopped: int = 0) -> EValues:
    """The e-values of so many outcomes; runs that were stopped early count against each claim."""
    return EValues(
        supported=e_value(losses + stopped, wins),
        refuted=e_value(wins + stopped, losses),
    )


@lru_cache(maxsize=65536)
def e_value(against: int, for_it: int) -> float:
    """The e-value of outcomes against the null hypothesis that each one is `for_it` with probability 1/2 or less.

    The likelihood ratio of outcomes `for_it` with probability p to those of a fair coin, mixed over p uniform on
    (1/2, 1): 2^(n+1) B(f+1, a+1) I_1/2(a+1, f+1), with the regularised incomplete beta function I. It is a
    supermartingale from 1 wherever the conditional probability is at most 1/2, whatever the past, so that it ever
    reaches 20 with probability 1/20 at most (Ville 1939; mixtures: Robbins, Ann. Math. Stat. 41, 1970; one-sided
    beta-binomial mixture: Howard et al., Ann. Stat. 49, 2021).
    """
    from scipy.special import betainc, betaln

    n = against + for_it
    log = (n + 1) * math.log(2) + float(betaln(for_it + 1, against + 1))
    mass = float(betainc(against + 1, for_it + 1, 0.5))
    if mass == 0:  # all but nothing of the likelihood lies above 1/2
        return 0.0
    return math.exp(min(log + math.log(mass), 700.0))
