"""The posterior of a hypothesis before and after each piece of evidence that is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from functions.rules.beliefs.posterior import posterior_of
from state.records import Evidence, Hypothesis


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

    Each outcome adds to alpha or beta (`functions.rules.beliefs.learning.after`), so the way back subtracts it. A tie
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
