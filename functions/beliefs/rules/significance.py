"""Tests of means of cells: contrasts, Holm's correction, two-way interaction, agreement of rankings.

Runs of a cell differ by noise. Its variance is the same in all cells, so it is estimated from all of them together.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations
from statistics import fmean

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
    """A weighted sum of cell means."""

    effect: float
    standard_error: float | None
    """None: no cell has two runs."""
    p_value: float | None
    """Of a two-sided t test of no effect."""


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
