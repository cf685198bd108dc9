"""Statistics of hypotheses: posterior, e-values and their way there; tests of means of cells.

Runs of a cell differ by noise. Its variance is the same in all cells, so it is estimated from all of them together.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import permutations
from statistics import fmean

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


# -- Tests of means of cells: contrasts, Holm's correction, two-way interaction, agreement of rankings.

Cells = Sequence[Sequence[float]]
"""The values of each cell, at least one in each."""


@dataclass(frozen=True)
class PooledVariance:
    """Variance of runs within cells."""

    variance: float
    freedom: int
    """Degrees of freedom, runs less cells; 0: the variance is unknown."""


@dataclass(frozen=True)
class Contrast:
    """An effect that cells show, such as a weighted sum of their means."""

    effect: float
    standard_error: float | None
    """None: no cell has two runs."""
    p_value: float | None
    """Two-sided P value of no effect; of a weighted sum by a t test."""


def pooled_variance(cells: Cells) -> PooledVariance:
    """The pooled variance within cells: their squared differences from their means over (runs - cells)."""
    squares = math.fsum((value - mean) ** 2 for cell in cells for mean in [fmean(cell)] for value in cell)
    freedom = sum(map(len, cells)) - len(cells)
    return PooledVariance(squares / freedom if freedom else 0.0, freedom)


def contrast(cells: Cells, weights: Sequence[float], spread: PooledVariance) -> Contrast:
    """sum(w m), its standard error s sqrt(sum(w^2 / n)), and Student's test of it (Scheffe 1959, 3.1)."""
    effect = math.fsum(w * fmean(cell) for w, cell in zip(weights, cells, strict=True))
    if not spread.freedom:
        return Contrast(effect, None, None)
    error = math.sqrt(
        spread.variance * math.fsum(w * w / len(cell) for w, cell in zip(weights, cells, strict=True))
    )
    return Contrast(effect, error, _student(effect, error, spread.freedom))


def holm(p_values: Sequence[float]) -> list[float]:
    """P values corrected for the number of tests, in the given order (Holm 1979).

    Whichever hypotheses hold, rejections below 0.05 include a wrong one in at most 5 % of cases.
    """
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, n in enumerate(sorted(range(len(p_values)), key=lambda n: p_values[n])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[n]))
        adjusted[n] = highest
    return adjusted


def residuals(means: Sequence[float], columns: int) -> list[float]:
    """Each cell of a grid, row by row, less (row mean + column mean - grand mean)."""
    grand = fmean(means)
    rows = [fmean(means[start : start + columns]) for start in range(0, len(means), columns)]
    cols = [fmean(means[column::columns]) for column in range(columns)]
    return [mean - (rows[n // columns] + cols[n % columns] - grand) for n, mean in enumerate(means)]


def interaction_p(cells: Cells, columns: int, spread: PooledVariance) -> float | None:
    """The P value of no interaction in a grid, row by row, by the F test of a two-way layout (Scheffe 1959, 4.3).

    It tests all (rows - 1) (columns - 1) contrasts at once. Cells may differ in their number of runs.
    """
    import numpy as np
    from scipy.special import fdtrc

    if not spread.freedom:
        return None
    rows = len(cells) // columns
    own = [np.eye(n)[1:] - np.eye(n)[:1] for n in (rows, columns)]
    contrasts = np.kron(own[0], own[1])
    effects = contrasts @ np.array([fmean(cell) for cell in cells])
    if spread.variance == 0:
        return 0.0 if np.any(np.abs(effects) > 1e-12) else 1.0
    covariance = contrasts @ np.diag([1 / len(cell) for cell in cells]) @ contrasts.T
    ratio = effects @ np.linalg.solve(covariance, effects) / len(contrasts) / spread.variance
    return float(fdtrc(len(contrasts), spread.freedom, max(0.0, float(ratio))))


# -- rankings


def concordance(rankings: Sequence[Sequence[float]]) -> float:
    """Kendall's W of m rankings of k things: 0 without agreement, 1 if equal (Kendall, Babington Smith 1939)."""
    m, k = len(rankings), len(rankings[0])
    return (
        12
        * _spread_of_sums([math.fsum(ranks) for ranks in zip(*rankings, strict=True)])
        / (m * m * (k**3 - k))
    )


def concordance_p(rankings: Sequence[Sequence[float]]) -> float:
    """The exact probability that m <= 4 random rankings of k <= 5 things agree at least as well."""
    m, k = len(rankings), len(rankings[0])
    seen = _spread_of_sums([math.fsum(ranks) for ranks in zip(*rankings, strict=True)])
    return sum(chance for sums, chance in _chances(m, k) if _spread_of_sums(sums) >= seen - 1e-9)


def ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1 for the lowest value; ties share their mean rank."""
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) + 1) / 2 for value in values]


@cache
def _chances(m: int, k: int) -> list[tuple[tuple[int, ...], float]]:
    """Sums of m random rankings of k things, sorted, with their chances."""
    orders = list(permutations(range(1, k + 1)))
    found: Counter[tuple[int, ...]] = Counter({tuple(range(1, k + 1)): 1})
    for _ in range(m - 1):
        further: Counter[tuple[int, ...]] = Counter()
        for sums, ways in found.items():
            for order in orders:
                further[tuple(sorted(a + b for a, b in zip(sums, order, strict=True)))] += ways
        found = further
    total = sum(found.values())
    return [(sums, ways / total) for sums, ways in found.items()]


def _spread_of_sums(sums: Sequence[float]) -> float:
    middle = fmean(sums)
    return math.fsum((each - middle) ** 2 for each in sums)


def _student(effect: float, error: float, freedom: int) -> float:
    """Two-sided P value of Student's t."""
    from scipy.special import stdtr

    if error == 0:
        return 0.0 if effect else 1.0
    return float(2 * stdtr(freedom, -abs(effect) / error))
