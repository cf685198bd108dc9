"""How much each dimension matters: its share of what a model of the runs predicts to differ.

A functional analysis of variance: of the variance that the model's prediction has over the whole space, every
dimension uniform in its own scale, some is explained by one dimension alone, some only by several together (Sobol'
2001; the shares by Saltelli et al. 2010, as scipy estimates them). A share does not fall because the search has
converged, as one of the results themselves would: the model is asked everywhere, and knows bad places from before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from functions.rules.swarm.gaussian_process.arrays import Floats
from functions.rules.swarm.gaussian_process.axes import Axis
from functions.rules.swarm.gaussian_process.sampler import learned
from functions.rules.swarm.observations import Observation, is_finished
from functions.rules.swarm.shapes import Shape, freedoms_of
from state.records import Dimension

SAMPLES = 512
"""Points of the quasi-random sequence, for each dimension and twice more; a power of two."""
LEAST_RUNS = 25
"""Finished runs without which nothing is said."""
WHOLE = Shape("investigate")


@dataclass(frozen=True)
class Importance:
    """Shares of the predicted variance, 0 to 1."""

    alone: float
    """What the dimension explains by itself: its main effect."""
    together: float
    """What it explains only with others: its interactions. One of two dimensions is counted for both."""


def importances(
    dimensions: Sequence[Dimension], observations: Sequence[Observation]
) -> Mapping[str, Importance]:
    """By dimension, those that are frozen too; empty while fewer than 25 runs have finished."""
    from scipy.stats import sobol_indices

    free = [d.model_copy(update={"frozen": False, "frozen_value": None}) for d in dimensions]
    axes = [Axis(freedom) for freedom in freedoms_of(free, WHOLE)]
    ended = [one for one in observations if not one.pending]
    if sum(map(is_finished, ended)) < LEAST_RUNS:
        return {}
    model = learned(axes, ended)
    found = sobol_indices(
        func=lambda points: model.predicted(points.T)[0],
        n=SAMPLES,
        dists=[_Uniform(axis) for axis in axes],
        rng=np.random.default_rng(0),
    )
    alone = np.clip(found.first_order, 0.0, 1.0)
    together = np.clip(found.total_order - alone, 0.0, 1.0)
    return {
        d.name: Importance(float(first), float(rest))
        for d, first, rest in zip(dimensions, np.atleast_1d(alone), np.atleast_1d(together), strict=True)
    }


@dataclass(frozen=True)
class _Uniform:
    """The places of an axis, all equally likely, as scipy wants a distribution."""

    axis: Axis

    def ppf(self, shares: Floats) -> Floats:
        return self.axis.at(shares.ravel()).reshape(shares.shape)
