"""The default sampler, and how much each dimension matters, by a Gaussian process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from functions.swarm.rules.gaussian_process import (
    Axis,
    Flags,
    Floats,
    Regression,
    chance_to_improve,
    fitted,
    log_expected_improvement,
)
from functions.swarm.rules.proposals import (
    LEAST,
    AtRandom,
    ConfigProposal,
    ConfigSampler,
    History,
    Observation,
    Scale,
    is_finished,
    priority_of,
    value_in,
)
from functions.swarm.rules.shapes import Freedom, Shape, freedoms_of, varied_names
from state.records import Dimension, Value

if TYPE_CHECKING:
    from random import Random

    from numpy.random import Generator


# -- The default sampler: configs with the largest expected improvement under a model of the runs so far.

EVERYWHERE = Shape("investigate")
"""Every dimension varies in its whole range; frozen ones keep their values."""
MOST_RESULTS = 150
"""Most results of the model: the best ones for half of them, the rest spread over the others by rank."""
MOST_PENDING = 150
"""Most pending runs that count, the newest ones."""
ANYWHERE, NEARBY = 500, 500
"""Candidates drawn in the whole space, and near the best configs."""
FURTHEST = 4.0
"""Largest distance of a result from the median, in robust standard deviations."""
CENTERS = 5
"""Best configs with candidates near them. Each gets 0.6 times as many as the one before."""
REPEATED = 1e-4
"""Jitter on the diagonal. It allows repeated points."""
SCALED_BY = 300
"""Runs to which `believed_best` fits its scales, spread evenly over time."""
PLACES = 65
"""Most places of an axis at which `believed_best` looks."""
ROUNDS = 4
"""Passes of `believed_best` over all axes."""
FALLING = 0.6
STEPS = (0.03, 0.1, 0.25)
"""Step sizes of candidates near the best configs, as shares of a range."""
STEPPED = (0.5, 0.3, 0.2)
"""Shares of the candidates near a config that differ from it in 1, 2 and 3 dimensions."""


class GaussianProcess(ConfigSampler):
    """Expected improvement under a Gaussian process (Jones et al. 1998).

    Outliers are evened out; see `_evened`. A crash is as bad as the worst result. Pending runs and the configs of one
    batch count as if they had their expected values, which reduces the uncertainty around them (kriging believer;
    Ginsbourger et al. 2010). Until there are more results than dimensions, configs are drawn at random.
    """

    def propose(
        self, dimensions: Sequence[Dimension], observations: History, shape: Shape, count: int, rng: Random
    ) -> list[ConfigProposal]:
        freedoms = freedoms_of(dimensions, shape)
        axes = [Axis(freedom) for freedom in freedoms]
        seen = _about(dimensions, observations)
        ended = [one for one in seen if not one.pending]
        if _are_too_few(ended, dimensions) or not count or not any(f.share for f in freedoms):
            return AtRandom().propose(dimensions, observations, shape, count, rng)
        chance = np.random.default_rng(rng.getrandbits(64))
        model = learned(axes, ended)
        pending = _points(axes, [one for one in seen if one.pending][-MOST_PENDING:])
        candidates = _candidates(freedoms, axes, model, shape, rng, chance)
        return [
            ConfigProposal(
                _config(axes, places),
                priority_of(LEAST[shape.strategy], promise),
                f"model: better than the best with a chance of {promise:.0%}",
            )
            for places, promise in _most_promising(
                model, candidates, pending, [_varying(axes, candidates, chance) for _ in range(count)]
            )
        ]

    def believed_best(
        self, dimensions: Sequence[Dimension], observations: History
    ) -> Mapping[str, Value] | None:
        """The config with the lowest mean under a model of all runs. It may never have run.

        The search begins at the run with the lowest mean and moves along one dimension after the other. The scales
        are fitted to runs from all of the time: among the best runs, luck would look like an effect of the config.
        """
        ended = [one for one in _about(dimensions, observations) if not one.pending]
        if _are_too_few(ended, dimensions):
            return None
        axes = [Axis(freedom) for freedom in freedoms_of(dimensions, EVERYWHERE)]
        points, results = _points(axes, ended), _evened(_comparable(ended))
        is_nominal = np.array([axis.is_nominal for axis in axes])
        shares = np.linspace(0.0, 1.0, PLACES)
        places = tuple(tuple(np.unique(axis.at(shares)).tolist()) for axis in axes)
        return _config(
            axes, np.array(_lowest(points.tobytes(), results.tobytes(), is_nominal.tobytes(), places))
        )


@lru_cache(maxsize=4)
def _lowest(
    points: bytes, results: bytes, is_nominal: bytes, places: Sequence[Sequence[float]]
) -> Sequence[float]:
    """The point with the lowest mean, by coordinate descent over `places` from the best point; cached."""
    of_all = np.frombuffer(results)
    known = np.frombuffer(points).reshape(len(of_all), -1)
    some = np.unique(np.linspace(0, len(of_all) - 1, SCALED_BY).astype(int))
    smoothed = _fitted(known[some].tobytes(), of_all[some].tobytes(), is_nominal).smoothed(known, of_all)
    means = smoothed(known)
    at, lowest = known[means.argmin()].copy(), float(means.min())
    for _ in range(ROUNDS):
        before = lowest
        for axis, its in enumerate(places):
            along = np.repeat(at[None], len(its), axis=0)
            along[:, axis] = its
            means = smoothed(along)
            if means.min() < lowest:
                at, lowest = along[means.argmin()], float(means.min())
        if lowest == before:
            break
    found: list[float] = at.tolist()
    return found


def _about(dimensions: Sequence[Dimension], observations: History) -> list[Observation]:
    """The runs that set at least one of these dimensions."""
    names = {dimension.name for dimension in dimensions}
    return [one for one in observations if not names.isdisjoint(one.config)]


def _are_too_few(ended: Sequence[Observation], dimensions: Sequence[Dimension]) -> bool:
    """Whether too few runs finished for a model."""
    return sum(map(is_finished, ended)) <= len(dimensions)


def _config(axes: Sequence[Axis], places: Floats) -> dict[str, Value]:
    return {axis.freedom.dimension.name: axis.value(place) for axis, place in zip(axes, places, strict=True)}


def _points(axes: Sequence[Axis], seen: Sequence[Observation]) -> Floats:
    """Places of runs, shape (runs, axes)."""
    return np.column_stack(
        [axis.places([value_in(one.config, axis.freedom.dimension) for one in seen]) for axis in axes]
    )


def learned(axes: Sequence[Axis], ended: Sequence[Observation]) -> Regression:
    """The model of the ended runs; it is the same for all shapes."""
    results = _evened(_comparable(ended))
    if len(results) > MOST_RESULTS:
        order, half = np.argsort(results, kind="stable"), MOST_RESULTS // 2
        others = np.linspace(half, len(results) - 1, MOST_RESULTS - half).astype(int)
        chosen = order[np.concatenate([np.arange(half), others])]
        ended, results = [ended[n] for n in chosen], results[chosen]
    points = _points(axes, ended)
    return _fitted(
        points.tobytes(), results.tobytes(), np.array([axis.is_nominal for axis in axes]).tobytes()
    )


@lru_cache(maxsize=4)
def _fitted(points: bytes, results: bytes, is_nominal: bytes) -> Regression:
    """`fitted`, cached for populations whose queues are filled together."""
    flags = np.frombuffer(is_nominal, dtype=np.bool_)
    return fitted(np.frombuffer(points).reshape(-1, len(flags)), np.frombuffer(results), flags)


def _comparable(ended: Sequence[Observation]) -> Floats:
    """Value of each run, lower is better; a crash has the worst one."""
    worst = max(one.value for one in ended if one.value is not None)
    return np.array([worst if one.value is None else one.value for one in ended])


def _evened(values: Floats) -> Floats:
    """The values without outliers, in the same order: the mean of two transformations.

    One takes normal quantiles of the ranks (Salinas et al. 2020). The other takes robust standard deviations from the
    median, logarithmic above it, which keeps the best values apart.
    """
    scale = Scale.of(values.tolist())
    far = np.array([scale.apart(value, FURTHEST) for value in values.tolist()])
    return (_quantiles(values) + np.where(far > 0, np.log1p(np.maximum(far, 0)), far)) / 2


def _quantiles(values: Floats) -> Floats:
    """Standard normal quantiles by rank; equal values share one."""
    from scipy.special import ndtri
    from scipy.stats import rankdata

    found: Floats = ndtri((rankdata(values) - 0.5) / len(values))
    return found


def _candidates(
    freedoms: Sequence[Freedom],
    axes: Sequence[Axis],
    model: Regression,
    shape: Shape,
    rng: Random,
    chance: Generator,
) -> Floats:
    """Distinct points within the shape; shape (candidates, axes)."""
    varied = np.array(
        [
            [f.dimension.name in names for f in freedoms]
            for names in (varied_names(freedoms, shape, rng) for _ in range(ANYWHERE + NEARBY))
        ]
    )
    anywhere = np.column_stack([axis.drawn(ANYWHERE, chance) for axis in axes])
    nearby = _nearby(axes, model, varied[ANYWHERE:], chance)
    fixed = np.array([axis.fixed for axis in axes])
    return np.unique(np.where(varied, np.concatenate([anywhere, nearby]), fixed), axis=0)


def _nearby(axes: Sequence[Axis], model: Regression, varied: Flags, chance: Generator) -> Floats:
    """Points that differ from the best configs in a few dimensions."""
    count = len(varied)
    centers = model.points[np.argsort(model.predicted(model.points)[0], kind="stable")[:CENTERS]]
    weights = FALLING ** np.arange(len(centers))
    base = centers[chance.choice(len(centers), size=count, p=weights / weights.sum())]
    places = np.where(varied, chance.random(varied.shape), 2.0).argsort(axis=1).argsort(axis=1)
    is_stepped = places < chance.choice(len(STEPPED), size=count, p=STEPPED)[:, None] + 1
    sizes = chance.choice(STEPS, size=count)
    found = np.column_stack([axis.snapped(base[:, n]) for n, axis in enumerate(axes)])
    for n, axis in enumerate(axes):
        rows = np.flatnonzero(is_stepped[:, n])
        found[rows, n] = axis.stepped(found[rows, n], sizes[rows], chance)
    return found


def _varying(axes: Sequence[Axis], candidates: Floats, chance: Generator) -> Flags:
    """Candidates for the next config, after a draw for each dimension that only a share of the configs varies."""
    shares = np.array([axis.freedom.share for axis in axes])
    varies, varied = chance.random(len(axes)) < shares, candidates != [axis.fixed for axis in axes]
    partly = (shares > 0) & (shares < 1)
    found: Flags = (varied == varies)[:, partly].all(axis=1)
    return found


def _most_promising(
    model: Regression, candidates: Floats, pending: Floats, fitting: Sequence[Flags]
) -> list[tuple[Floats, float]]:
    """The best candidate for each mask in `fitting`, with its chance to beat the best.

    None is taken twice or while it is pending, unless too few are left.
    """
    known = np.concatenate([pending, candidates])
    beliefs = Beliefs(model, known)
    mean = beliefs.mean
    best = float(min([*model.predicted(model.points)[0], *mean[: len(pending)]]))
    beliefs.believe(range(len(pending)))
    is_out = (candidates[:, None, :] == pending[None, :, :]).all(axis=2).any(axis=1)
    found: list[tuple[Floats, float]] = []
    for fits in fitting:
        deviation = beliefs.deviation
        worth = log_expected_improvement(mean, deviation, best)[len(pending) :]
        allowed = next((some for some in (fits & ~is_out, ~is_out, fits) if some.any()), ~fits)
        taken = int(np.where(allowed, worth, -np.inf).argmax())
        n = taken + len(pending)
        found.append((known[n], float(chance_to_improve(mean[n], deviation[n], best))))
        beliefs.believe([n])
        is_out[taken], best = True, min(best, float(mean[n]))
    return found


class Beliefs:
    """Mean and uncertainty at points, while more and more of them are assumed to be known."""

    def __init__(self, model: Regression, points: Floats) -> None:
        self._model, self._points = model, points
        self._covered = [model.covered(points)]
        """Blocks of rows as in `Regression.covered`, one more for each `believe`."""
        self._variance = model.variance - np.einsum("ij,ij->j", self._covered[0], self._covered[0])
        self.mean = model.mean_of(self._covered[0])

    @property
    def deviation(self) -> Floats:
        """In the unit of the results."""
        found: Floats = self._model.scale * np.sqrt(np.maximum(self._variance, 1e-9))
        return found

    def believe(self, those: Sequence[int]) -> None:
        """Assume the expected values at these points: the means stay, the uncertainty falls.

        They are values without noise: noisy ones would be worth repeating before the runs have ended.
        """
        from scipy.linalg import solve_triangular

        if not len(those):
            return
        chosen = list(those)
        shared = self._model.covariance(self._points[chosen], self._points)
        shared -= sum(rows[:, chosen].T @ rows for rows in self._covered)
        own = shared[:, chosen] + REPEATED * np.eye(len(chosen))
        rows: Floats = solve_triangular(np.linalg.cholesky(own), shared, lower=True, check_finite=False)
        self._covered.append(rows)
        self._variance = self._variance - np.einsum("ij,ij->j", rows, rows)


# -- How much each dimension matters: its share of the variance of a model's predictions.
#
# A functional analysis of variance over the whole space, every dimension uniform in its own scale (Sobol' 2001).
# Some of the variance is explained by one dimension alone, some only by several together. scipy estimates the
# shares after Saltelli et al. 2010. A share does not fall when the search converges, as a share of the results'
# variance would: the model predicts everywhere, and remembers bad places.

SAMPLES = 512
"""Points of the quasi-random sequence, for each dimension and two more times; a power of two."""
LEAST_RUNS = 25
"""Finished runs below which nothing is measured."""
INTERACTING = 6
"""Dimensions whose pairs are measured."""
LEAST_SHARE = 0.02
"""Smallest share of a pair that is shown; smaller ones may be chance."""


@dataclass(frozen=True)
class Importance:
    """Shares of the predicted variance, 0 to 1, rounded; named like the fields of `Dimension`."""

    importance: float
    """Main effect: what the dimension explains by itself."""
    interaction: float
    """What it explains only together with others. An interaction of two dimensions counts for both."""
    interacts_with: Mapping[str, float]
    """Interaction with one other dimension, by its name; largest first."""


def importances(dimensions: Sequence[Dimension], observations: History) -> Mapping[str, Importance]:
    """By dimension, frozen ones included; empty with fewer than 25 finished runs."""
    from scipy.stats import sobol_indices

    free = [d.model_copy(update={"frozen": False, "frozen_value": None}) for d in dimensions]
    axes = [Axis(freedom) for freedom in freedoms_of(free, EVERYWHERE)]
    ended = [one for one in observations if not one.pending]
    if sum(map(is_finished, ended)) < LEAST_RUNS:
        return {}
    model = learned(axes, ended)

    def predicted(points: Floats) -> Floats:
        return model.predicted(points.T)[0]

    found = sobol_indices(
        func=predicted, n=SAMPLES, dists=[_Uniform(axis) for axis in axes], rng=np.random.default_rng(0)
    )
    alone = np.atleast_1d(np.clip(found.first_order, 0.0, 1.0))
    together = np.clip(np.atleast_1d(found.total_order) - alone, 0.0, 1.0)
    pairs = _pairs(predicted, axes, together)
    shares = {
        n: sorted(
            ((share, m) for pair, share in pairs.items() if n in pair for m in pair - {n}), reverse=True
        )
        for n in range(len(axes))
    }
    return {
        d.name: Importance(
            round(float(alone[n]), 4),
            round(float(together[n]), 4),
            {dimensions[m].name: round(share, 4) for share, m in shares[n]},
        )
        for n, d in enumerate(dimensions)
    }


def _pairs(
    predicted: Callable[[Floats], Floats], axes: Sequence[Axis], together: Floats
) -> Mapping[frozenset[int], float]:
    """Shares that pairs of axes explain together, beyond their single shares; only for axes that interact most.

    The closed index of a pair, less the first-order indices of its axes. All are estimated on the same points
    (Saltelli et al. 2010, table 2, estimator b, with the columns of the axes exchanged), so that their errors cancel.
    """
    from scipy.stats import qmc

    most = [n for n in np.argsort(-together, kind="stable")[:INTERACTING] if together[n] >= LEAST_SHARE]
    if len(most) < 2:
        return {}
    shares = qmc.Sobol(2 * len(axes), rng=np.random.default_rng(1)).random(2 * SAMPLES).T
    a, b = (
        np.array([axis.at(column) for axis, column in zip(axes, half, strict=True)])
        for half in np.split(shares, 2)
    )
    of_a, of_b = predicted(a), predicted(b)
    middle, variance = float(of_b.mean()), float(np.concatenate([of_a, of_b]).var())

    def closed(*those: int) -> float:
        """Share of the variance that these axes explain, alone and together."""
        mixed = a.copy()
        mixed[[*those]] = b[[*those]]
        return float(np.mean((of_b - middle) * (predicted(mixed) - of_a))) / variance

    alone = {n: closed(n) for n in most}
    shares_of = {frozenset((n, m)): closed(n, m) - alone[n] - alone[m] for n, m in combinations(most, 2)}
    return {pair: min(share, 1.0) for pair, share in shares_of.items() if share >= LEAST_SHARE}


@dataclass(frozen=True)
class _Uniform:
    """The uniform distribution of an axis, in scipy's form."""

    axis: Axis

    def ppf(self, shares: Floats) -> Floats:
        return self.axis.at(shares.ravel()).reshape(shares.shape)
