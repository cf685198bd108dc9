"""The posterior of a hypothesis: what is believed of theta, the share of its runs that win.

Prior and posterior are Beta distributions, conjugate to outcomes that win or lose (Gelman et al., Bayesian Data
Analysis, 3rd edition, 2013, section 2.4). Every figure is exact, from the distribution function.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from state.records import Hypothesis

SUPPORTS = 0.60
"""A claim is supported by a theta above this."""
REFUTES = 0.40
"""A claim is refuted by a theta below this."""
CREDIBLE = 0.90
"""Mass of the credible interval; its ends leave half of the rest on each side."""


@dataclass(frozen=True)
class Posterior:
    """What is believed of theta; the three probabilities sum to 1."""

    posterior_mean: float
    credible_interval_90: tuple[float, float]
    """The 5 % and the 95 % quantile."""
    support_probability: float
    """Of theta > 0.60."""
    refute_probability: float
    """Of theta < 0.40."""
    rope_probability: float
    """Of theta between them: a region of practical equivalence to a coin."""


def posterior(hypothesis: Hypothesis) -> Posterior:
    """What is believed of a hypothesis."""
    return posterior_of(hypothesis.alpha, hypothesis.beta)


@lru_cache(maxsize=4096)
def posterior_of(alpha: float, beta: float) -> Posterior:
    """What a Beta(alpha, beta) says of theta; both above 0."""
    from scipy.special import betainc, betaincinv

    tail = (1 - CREDIBLE) / 2
    # 1 - I_x(a, b) is I_(1-x)(b, a), which keeps its digits where it is small (DLMF 8.17.4)
    support = float(betainc(beta, alpha, 1 - SUPPORTS))
    refute = float(betainc(alpha, beta, REFUTES))
    return Posterior(
        posterior_mean=alpha / (alpha + beta),
        credible_interval_90=(
            float(betaincinv(alpha, beta, tail)),
            float(betaincinv(alpha, beta, 1 - tail)),
        ),
        support_probability=support,
        refute_probability=refute,
        rope_probability=max(1 - support - refute, 0.0),
    )
