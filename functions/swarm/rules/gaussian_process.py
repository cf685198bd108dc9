"""Gaussian process regression over the values of dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from functions.swarm.rules.dimensions import ends_of, key_of
from functions.swarm.rules.shapes import Freedom
from state.records import Dimension, Value

if TYPE_CHECKING:
    from numpy.random import Generator


# -- Gaussian process regression and expected improvement: mean and uncertainty of configs that did not run.
#
# Rasmussen and Williams 2006, Gaussian Processes for Machine Learning: algorithm 2.1 (the posterior, by Cholesky)
# and equation 5.9 (the gradient of the log marginal likelihood). Distances are scaled for each axis by itself.

USUAL_LENGTH = 0.45
"""Prior length scale of a single axis, as a share of its range.

It grows with the root of the number of axes, as distances do (Hvarfner et al. 2024)."""
LENGTH_SPREAD = 1.3
"""Standard deviation of a length scale's logarithm."""
USUAL_NOISE = 0.02
"""Prior noise variance of a result; all results have the variance 1."""
NOISE_SPREAD = 1.5
JITTER = 1e-6
"""Jitter on the diagonal. It allows equal points."""
STEPS = 25
"""Most steps of the search for the scales."""


@dataclass(frozen=True, eq=False)
class Regression:
    """The joint normal posterior of the results, in their unit. Arrays of points have the shape (points, axes)."""

    points: Floats
    is_nominal: Flags
    """Axes without distances."""
    precisions: Floats
    """One over the squared length scale of each axis."""
    variance: float
    """Prior variance of a config's value."""
    noise: float
    """Variance of a result around its config's value."""
    root: Floats
    """Lower Cholesky factor of the results' covariance."""
    whitened: Floats
    """The results, multiplied by the inverse of `root`."""
    mean: float
    scale: float
    """Mean and standard deviation of the results before they were standardised."""

    def covered(self, points: Floats) -> Floats:
        """Covariance of results and points, times the inverse of `root`: (results, points), standardised."""
        from scipy.linalg import solve_triangular

        found: Floats = solve_triangular(
            self.root, self.covariance(self.points, points), lower=True, check_finite=False
        )
        return found

    def covariance(self, a: Floats, b: Floats) -> Floats:
        """Prior covariance of the values at two lists of points; standardised."""
        apart = np.zeros((len(a), len(b)))
        for n, (precision, is_nominal) in enumerate(zip(self.precisions, self.is_nominal, strict=True)):
            between = a[:, n, None] - b[None, :, n]
            apart += precision * (between != 0 if is_nominal else between * between)
        return self.variance * _matern(apart)[0]

    def predicted(self, points: Floats) -> tuple[Floats, Floats]:
        """Mean and variance of the values at these points."""
        covered = self.covered(points)
        variance = np.maximum(self.variance - np.einsum("ij,ij->j", covered, covered), JITTER)
        return self.mean_of(covered), self.scale**2 * variance

    def mean_of(self, covered: Floats) -> Floats:
        """Mean of the values at the points whose `covered` this is."""
        found: Floats = self.mean + self.scale * (covered.T @ self.whitened)
        return found

    def smoothed(self, points: Floats, results: Floats) -> Callable[[Floats], Floats]:
        """A function that predicts the mean at points from these results, with the scales of this fit.

        `points` has the shape (results, axes), `results` the shape (results,).
        """
        from scipy.linalg import cho_factor, cho_solve

        noisy = self.covariance(points, points) + (self.noise + JITTER) * np.eye(len(points))
        weights = cho_solve(
            cho_factor(noisy, lower=True, overwrite_a=True, check_finite=False),
            (results - self.mean) / self.scale,
            check_finite=False,
        )

        def mean(at: Floats) -> Floats:
            found: Floats = self.mean + self.scale * (self.covariance(at, points) @ weights)
            return found

        return mean


def fitted(points: Floats, results: Floats, is_nominal: Flags) -> Regression:
    """The regression of some finite results, by the maximum posterior scales; with few results the prior decides."""
    from scipy.optimize import minimize

    mean, scale = float(results.mean()), float(results.std()) or 1.0
    values = (results - mean) / scale
    search = _ScaleSearch(points, values, is_nominal)
    found = minimize(
        search.loss,
        search.expected,
        jac=True,
        method="L-BFGS-B",
        bounds=search.bounds,
        options={"maxiter": STEPS},
    ).x
    parts = search.parts(found)
    root: Floats = np.linalg.cholesky(parts.covariance).astype(np.float64)
    whitened = np.linalg.solve(root, values).astype(np.float64)
    return Regression(
        points, is_nominal, parts.precisions, parts.variance, parts.noise, root, whitened, mean, scale
    )


@dataclass(frozen=True)
class _Parts:
    """A covariance of results, with the parts of its derivatives."""

    precisions: Floats
    variance: float
    noise: float
    covariance: Floats
    """Shape (results, results); the lower triangle, which is all that is read."""
    closeness: Floats
    slope: Floats
    """Shape (pairs,), both."""


@dataclass(frozen=True)
class _ScaleSearch:
    """Searches the logarithms of precisions, variance and noise, in this order; computes each pair once."""

    points: Floats
    values: Floats
    is_nominal: Flags

    @cached_property
    def pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Every two results, as the places of the lower triangle of a matrix."""
        return np.tril_indices(len(self.points), -1)

    @cached_property
    def apart(self) -> Floats:
        """Squared distances on each axis, of shape (axes, pairs); 1 between two nominal places."""
        some, others = self.pairs
        between = (self.points[some] - self.points[others]).T
        return np.where(self.is_nominal[:, None], between != 0, between * between)

    @property
    def expected(self) -> Floats:
        axes = len(self.is_nominal)
        length = USUAL_LENGTH * math.sqrt(axes)
        return np.array([-2 * math.log(length)] * axes + [0.0, math.log(USUAL_NOISE)])

    @property
    def spread(self) -> Floats:
        """Standard deviations of the prior."""
        return np.array([2 * LENGTH_SPREAD] * len(self.is_nominal) + [1.0, NOISE_SPREAD])

    @property
    def bounds(self) -> list[tuple[float, float]]:
        return [(-6.0, 7.0)] * len(self.is_nominal) + [(-3.0, 3.0), (math.log(1e-4), math.log(2.0))]

    def parts(self, logs: Floats) -> _Parts:
        *precisions, variance, noise = np.exp(logs)
        closeness, slope = _matern(precisions @ self.apart)
        covariance = np.diag(np.full(len(self.values), variance + noise + JITTER))
        covariance[self.pairs] = variance * closeness
        return _Parts(np.array(precisions), float(variance), float(noise), covariance, closeness, slope)

    def loss(self, logs: Floats) -> tuple[float, Floats]:
        """Minus the logarithm of the posterior density, up to a constant, and its gradient."""
        from scipy.linalg import cho_solve
        from scipy.linalg.lapack import dpotri

        parts = self.parts(logs)
        root = np.linalg.cholesky(parts.covariance)
        weights = cho_solve((root, True), self.values, check_finite=False)
        inverse, _ = dpotri(root, lower=True)
        off = (logs - self.expected) / self.spread
        value = 0.5 * self.values @ weights + np.log(np.diag(root)).sum() + 0.5 * off @ off
        some, others = self.pairs
        # twice a half, for each pair and its mirror image
        left = inverse[self.pairs] - weights[some] * weights[others]
        trace = 0.5 * float(np.trace(inverse) - weights @ weights)
        by_axis = self.apart @ (left * parts.slope) * parts.precisions * parts.variance
        by_variance = parts.variance * (left @ parts.closeness + trace)
        by_noise = parts.noise * trace
        return float(value), np.array([*by_axis, by_variance, by_noise]) + off / self.spread


def _matern(squares: Floats) -> tuple[Floats, Floats]:
    """Matérn covariance of order 5/2 at squared distances, and its derivative by them (ibid., equation 4.17)."""
    far = np.sqrt(5 * squares)
    fading = np.exp(-far)
    return (1 + far + far * far / 3) * fading, -5 / 6 * (1 + far) * fading


Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


_FAR = -1.0
"""Number of standard deviations below which the usual formula loses its digits."""


def log_expected_improvement(mean: Floats, deviation: Floats, best: float) -> Floats:
    """The logarithm of E[max(best - X, 0)] of normally distributed X; lower values are better.

    Jones et al. 1998; its logarithm, which is finite however unlikely an improvement is, after Ament et al. 2023.
    """
    from scipy.special import erfcx, ndtr

    z = (best - mean) / deviation
    near, far = np.maximum(z, _FAR), np.minimum(z, _FAR)
    usual = np.log(np.exp(-near * near / 2) / math.sqrt(2 * math.pi) + near * ndtr(near))
    # phi(z) + z Phi(z) = phi(z) (1 - |z| erfcx(|z| / sqrt 2) sqrt(pi / 2))
    rest = 1 + far * erfcx(-far / math.sqrt(2)) * math.sqrt(math.pi / 2)
    unusual = -far * far / 2 - math.log(2 * math.pi) / 2 + np.log(np.maximum(rest, 1 / (2 + far**4)))
    found: Floats = np.where(z > _FAR, usual, unusual) + np.log(deviation)
    return found


def chance_to_improve(mean: Floats, deviation: Floats, best: float) -> Floats:
    """Pr(X < best) of normally distributed X."""
    from scipy.special import ndtr

    found: Floats = ndtr((best - mean) / deviation)
    return found


# -- Axes: values of dimensions as numbers, between which a model measures distances.

BY_FACTORS = 8
"""Ratio from which ints and numeric categories use a logarithmic scale, as widths and batch sizes do."""
ORDERED = 3
"""Fewest numeric categories that count as ordered."""
UNKNOWN = -1.0
"""Place of a value that is no category. It is equally far from all of them."""
FAR = 1.0
"""Largest distance of a number beyond its range, in ranges."""
MIDDLE = 0.5
"""Place of a run without a number in this dimension."""


@dataclass(frozen=True)
class Axis:
    """One dimension within a shape.

    The place of a number is its share of the dimension's range, 0 to 1, in the dimension's scale. That of a category
    is its index, and says only which are the same; where all categories are numbers, it is that of the number.
    """

    freedom: Freedom

    @cached_property
    def is_nominal(self) -> bool:
        """Places are only equal or different; their distance means nothing."""
        return self._scale is None

    @cached_property
    def fixed(self) -> float:
        """Its place in configs that do not vary it."""
        return float(self.places([self.freedom.fixed])[0])

    def places(self, values: Sequence[Value | None]) -> Floats:
        """Places of values, also of those outside the range. None: a run did not set the dimension."""
        if self._scale is None:
            indices = {key_of(each): float(n) for n, each in enumerate(self._dimension.categories or ())}
            return np.array(
                [UNKNOWN if each is None else indices.get(key_of(each), UNKNOWN) for each in values]
            )
        lowest = 0.0 if self._scale.by_factors else -math.inf
        numbers = [
            math.nan if each is None or isinstance(each, bool | str) or each <= lowest else float(each)
            for each in values
        ]
        places = self._scale.places(np.array(numbers, dtype=float))
        return np.where(np.isnan(places), MIDDLE, places)

    def value(self, place: float) -> Value:
        """The value at a place of the room, or the fixed value."""
        if place == self.fixed:
            return self.freedom.fixed
        room = self.freedom.room
        if self._scale is None or room.choices:
            return room.choices[int(np.abs(self._choices - place).argmin())]
        found = room.nearest(float(self._scale.numbers(np.array(place))))
        assert found is not None
        return found

    def drawn(self, count: int, rng: Generator) -> Floats:
        """Random places of the room, uniform over choices, over spans, and within a span."""
        if self.freedom.room.choices:
            return self._choices[rng.integers(len(self._choices), size=count)]
        low, high = self._spans[rng.integers(len(self._spans), size=count)].T
        return self.snapped(low + (high - low) * rng.random(count))

    def at(self, shares: Floats) -> Floats:
        """The places at these shares, 0 to 1, of the room's choices or of its one span."""
        if self.freedom.room.choices:
            nth = np.minimum((shares * len(self._choices)).astype(int), len(self._choices) - 1)
            chosen: Floats = self._choices[nth]
            return chosen
        low, high = self._spans[0]
        return self.snapped(low + (high - low) * shares)

    def stepped(self, places: Floats, sizes: Floats, rng: Generator) -> Floats:
        """Places of the room near these: normal steps of `sizes` (shares of the range), or another choice."""
        if self.is_nominal:
            others = self._choices[rng.integers(len(self._choices), size=len(places))]
            again = others == places
            others[again] = self._choices[rng.integers(len(self._choices), size=int(again.sum()))]
            return others
        return self.snapped(places + sizes * rng.standard_normal(len(places)))

    def snapped(self, places: Floats) -> Floats:
        """The places of the room nearest to these."""
        if self.freedom.room.choices:
            chosen: Floats = self._choices[np.abs(places[:, None] - self._choices).argmin(axis=1)]
            return chosen
        inside = np.clip(places[:, None], *self._spans.T)
        found: Floats = inside[np.arange(len(places)), np.abs(inside - places[:, None]).argmin(axis=1)]
        if self._dimension.dtype != "int" or self._scale is None:
            return found
        return self._scale.places(np.rint(self._scale.numbers(found)))

    @property
    def _dimension(self) -> Dimension:
        return self.freedom.dimension

    @cached_property
    def _scale(self) -> _Scale | None:
        categories = self._dimension.categories
        if categories is None:
            low, high = map(float, ends_of(self._dimension))
        elif len(numbers := _numbers(categories)) == len(categories) >= ORDERED:
            low, high = min(numbers), max(numbers)
        else:
            return None
        is_coarse = self._dimension.dtype in ("int", "categorical") and 0 < BY_FACTORS * low <= high
        return _Scale(low, high, by_factors=is_coarse or self._dimension.dtype == "float_log")

    @cached_property
    def _choices(self) -> Floats:
        return self.places(self.freedom.room.choices)

    @cached_property
    def _spans(self) -> Floats:
        """Rows of the first and the last place of each span."""
        return np.array([self.places(span) for span in self.freedom.room.spans])


@dataclass(frozen=True)
class _Scale:
    low: float
    high: float
    by_factors: bool

    def places(self, numbers: Floats) -> Floats:
        low, high = self._ends
        if high == low:
            return np.zeros_like(numbers)
        return np.clip((self._scaled(numbers) - low) / (high - low), -FAR, 1 + FAR)

    def numbers(self, places: Floats) -> Floats:
        low, high = self._ends
        scaled: Floats = low + places * (high - low)
        return np.exp(scaled) if self.by_factors else scaled

    @cached_property
    def _ends(self) -> tuple[float, float]:
        return (math.log(self.low), math.log(self.high)) if self.by_factors else (self.low, self.high)

    def _scaled(self, numbers: Floats) -> Floats:
        return np.log(numbers) if self.by_factors else numbers


def _numbers(categories: Sequence[Value]) -> list[float]:
    return [float(each) for each in categories if not isinstance(each, bool | str)]
