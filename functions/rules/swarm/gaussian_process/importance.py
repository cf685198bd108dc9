"""How much each dimension matters: its share of the variance of a model's predictions.

A functional analysis of variance over the whole space, every dimension uniform in its own scale (Sobol' 2001). Some
of the variance is explained by one dimension alone, some only by several together. scipy estimates the shares after
Saltelli et al. 2010. A share does not fall when the search converges, as a share of the results' variance would: the
model predicts everywhere, and remembers bad places.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from functions.rules.swarm.gaussian_process.axes import Axis
from functions.rules.swarm.gaussian_process.regression import Floats
from functions.rules.swarm.gaussian_process.sampler import EVERYWHERE, learned
from functions.rules.swarm.observations import Observation, is_finished
from functions.rules.swarm.shapes import freedoms_of
from state.records import Dimension

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


def importances(
    dimensions: Sequence[Dimension], observations: Sequence[Observation]
) -> Mapping[str, Importance]:
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
        func=predicted,
        n=SAMPLES,
        dists=[_Uniform(axis) for axis in axes],
        rng=np.random.default_rng(0),
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
