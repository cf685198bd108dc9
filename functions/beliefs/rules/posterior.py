"""Posterior and e-values of a hypothesis, and the way there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from pydantic import BaseModel, ConfigDict

from state.records import Evidence, Hypothesis

# -- Posterior and e-values of theta, the share of a hypothesis' runs that win.
#
# Prior and posterior are Beta distributions, which are conjugate to Bernoulli outcomes. Source: Gelman et al.,
# Bayesian Data Analysis, 3rd edition (2013), section 2.4. E-values stay valid however often one looks at them. A
# verdict that is hard to undo needs one: the posterior alone, looked at after every run, decides many claims that
# are not true.

SUPPORTS = 0.60
"""A claim is supported by a theta above this."""
REFUTES = 0.40
"""A claim is refuted by a theta below this."""
CREDIBLE = 0.90
"""Mass of the central credible interval."""
ENOUGH_E_VALUE = 20.0
"""E-value that a verdict needs. At most 1 in 20 claims whose null hypothesis holds ever reach it."""


class Posterior(BaseModel):
    """The posterior of theta; the three probabilities sum to 1."""

    model_config = ConfigDict(frozen=True)

    posterior_mean: float
    """P, the posterior mean of the share of its runs that win."""
    credible_interval_90: tuple[float, float]
    """The 5 % and the 95 % quantile."""
    support_probability: float
    """Probability that this share is above 0.60."""
    refute_probability: float
    """Probability that it is below 0.40."""
    rope_probability: float
    """Probability that it is between, in the region of practical equivalence to a coin."""


def posterior(hypothesis: Hypothesis) -> Posterior:
    return posterior_of(hypothesis.alpha, hypothesis.beta)


@lru_cache(maxsize=4096)
def posterior_of(alpha: float, beta: float) -> Posterior:
    """The posterior Beta(alpha, beta); both above 0."""
    from scipy.special import betainc, betaincinv

    tail = (1 - CREDIBLE) / 2
    # 1 - I_x(a, b) is I_(1-x)(b, a), which keeps its digits where it is small (DLMF 8.17.4)
    support = float(betainc(beta, alpha, 1 - SUPPORTS))
    refute = float(betainc(alpha, beta, REFUTES))
    return Posterior(
        posterior_mean=alpha / (alpha + beta),
        credible_interval_90=(float(betaincinv(alpha, beta, tail)), float(betaincinv(alpha, beta, 1 - tail))),
        support_probability=support,
        refute_probability=refute,
        rope_probability=max(1 - support - refute, 0.0),
    )


@dataclass(frozen=True)
class EValues:
    """The e-values of a hypothesis' outcomes against its two null hypotheses."""

    supported: float
    """Against theta <= 0.5."""
    refuted: float
    """Against theta >= 0.5."""


def e_values(wins: int, losses: int, stopped: int = 0) -> EValues:
    """The e-values of these counts; runs that were stopped early count against both claims."""
    return EValues(supported=e_value(losses + stopped, wins), refuted=e_value(wins + stopped, losses))


@lru_cache(maxsize=65536)
def e_value(against: int, for_it: int) -> float:
    """The e-value against the null hypothesis that each outcome is `for_it` with probability 1/2 or less.

    It is the likelihood ratio of p against a fair coin, mixed over p uniform on (1/2, 1): with f = `for_it` and a =
    `against`, 2^(n+1) B(f+1, a+1) I_1/2(a+1, f+1), where I is the regularised incomplete beta function. Under the
    null hypothesis it is a supermartingale that starts at 1. So it ever reaches 20 with probability 1/20 at most
    (Ville 1939; mixtures: Robbins, Ann. Math. Stat. 41, 1970; one-sided beta-binomial mixture: Howard et al., Ann.
    Stat. 49, 2021).
    """
    from scipy.special import betainc, betaln

    n = against + for_it
    log = (n + 1) * math.log(2) + float(betaln(for_it + 1, against + 1))
    mass = float(betainc(against + 1, for_it + 1, 0.5))
    if mass == 0:  # underflow: hardly any likelihood lies above 1/2
        return 0.0
    return math.exp(min(log + math.log(mass), 700.0))


# -- The posterior of a hypothesis before and after each piece of evidence that is kept.


@dataclass(frozen=True)
class PosteriorPoint:
    """The posterior after `n` outcomes."""

    n: int
    mean: float
    """Posterior mean of theta, the share of its runs that win."""
    low: float
    """The 5 % quantile; with `high` the central 90 % interval."""
    high: float


def trajectory(hypothesis: Hypothesis) -> tuple[PosteriorPoint, Sequence[tuple[Evidence, PosteriorPoint]]]:
    """The point before the oldest evidence that is kept, and the point after each piece, oldest first.

    Each outcome adds to alpha or beta (`functions.beliefs.rules.learning.after`), so the way back subtracts it. A tie
    moves nothing.
    """
    alpha, beta, n = hypothesis.alpha, hypothesis.beta, hypothesis.n_experiments
    steps: list[tuple[Evidence, PosteriorPoint]] = []
    for said in reversed(hypothesis.evidence):
        steps.append((said, _point(n, alpha, beta)))
        if said.outcome is not None:
            alpha, beta, n = alpha - said.outcome, beta - (1 - said.outcome), n - 1
    return _point(n, alpha, beta), steps[::-1]


def _point(n: int, alpha: float, beta: float) -> PosteriorPoint:
    found = posterior_of(alpha, beta)
    low, high = found.credible_interval_90
    return PosteriorPoint(n, found.posterior_mean, low, high)
