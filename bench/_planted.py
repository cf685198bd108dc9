"""A ground truth for simulated swarms: relevant dimensions, an irrelevant one, and two that interact."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from random import Random
from typing import Any

from functions.swarm.rules.dimensions import DeclaredDimension, checked
from state.records import Dimension, Value

SIGMA = 0.002
"""Standard deviation between two runs of one config."""
UNTUNED = 1.0
"""Metric of a config with all numbers in the middle of their ranges and the first categories."""


def declared(name: str, dtype: str, **fields: Any) -> Dimension:
    return checked(DeclaredDimension.model_validate({"name": name, "dtype": dtype, **fields}))


DIMENSIONS = (
    declared("LR", "float_log", min=1e-4, max=1e-1),
    declared("WIDTH", "int", min=32, max=512),
    declared("DROPOUT", "float", min=0, max=0.5),
    declared("LAYERS", "int", min=1, max=9),
    declared("WARMUP", "float", min=0, max=0.3),
    declared("OPTIMIZER", "categorical", categories=["adam", "sgd", "lion", "adafactor"]),
    declared("BATCH_SIZE", "categorical", categories=[64, 128, 256, 512]),
    declared("WEIGHT_DECAY", "float_log", min=1e-6, max=1e-1),
)
WEAK = declared("CLIP", "float", min=0, max=2)
"""An optional further dimension. Its best and worst values differ by WEAK_RANGE."""
WEAK_RANGE = 2.0
"""In sigmas."""
IRRELEVANT = "WEIGHT_DECAY"
TOGETHER = ("WIDTH", "DROPOUT")
"""Two dimensions that interact."""
APART = ("LR", "WARMUP")
"""Two dimensions without an interaction."""
GAINS = {"LR": 8.0, "WIDTH": 4.0, "DROPOUT": 4.0, "LAYERS": 5.0, "WARMUP": 4.0}
"""Gain of the best value over the middle of the range, in sigmas."""
INTERACTION = 4.0
"""In sigmas, at the ends of both ranges."""
CATEGORIES = {"OPTIMIZER": (0.0, 6.0, -5.0, -2.0), "BATCH_SIZE": (0.0, -4.0, -2.0, 3.0)}
"""In sigmas; a lower value is better."""
OFF = (0.2, 0.35)
"""Distance of a best value from the middle, as a share of the range."""
STEPS = 200
"""Number of steps in the search for the best value of a range."""


@dataclass(frozen=True)
class Truth:
    """Value of a config without noise. Effects of dimensions are additive, except for those in TOGETHER."""

    best_places: Mapping[str, float]
    """Place of the best value in each range, 0 to 1."""
    dimensions: Sequence[Dimension] = DIMENSIONS

    @classmethod
    def drawn(cls, rng: Random, dimensions: Sequence[Dimension] = DIMENSIONS) -> Truth:
        names = [*GAINS, WEAK.name]
        return cls({name: 0.5 + rng.choice((-1, 1)) * rng.uniform(*OFF) for name in names}, dimensions)

    def value(self, config: Mapping[str, Value]) -> float:
        """The metric of a config that has every dimension."""
        apart = sum(self._effect(d, config[d.name]) for d in self.dimensions)
        return UNTUNED + SIGMA * (apart + self._together({name: config[name] for name in TOGETHER}))

    @cached_property
    def best(self) -> float:
        """The lowest value of any config."""
        alone = (d for d in self.dimensions if d.name not in TOGETHER)
        apart = sum(min(self._effect(d, value) for value in values_of(d)) for d in alone)
        pair = [d for d in DIMENSIONS if d.name in TOGETHER]
        together = min(
            sum(self._effect(d, value) for d, value in zip(pair, values, strict=True))
            + self._together(dict(zip((d.name for d in pair), values, strict=True)))
            for values in product(*map(values_of, pair))
        )
        return UNTUNED + SIGMA * (apart + together)

    def regret(self, config: Mapping[str, Value]) -> float:
        """Distance of a config from the best one, in sigmas."""
        return (self.value(config) - self.best) / SIGMA

    def _effect(self, dimension: Dimension, value: Value) -> float:
        if dimension.categories is not None:
            return CATEGORIES[dimension.name][dimension.categories.index(value)]
        if dimension.name == IRRELEVANT:
            return 0.0
        best = self.best_places[dimension.name]
        if dimension.name == WEAK.name:
            return WEAK_RANGE * ((place_of(dimension, value) - best) / max(best, 1 - best)) ** 2
        return GAINS[dimension.name] * (((place_of(dimension, value) - best) / (best - 0.5)) ** 2 - 1)

    def _together(self, config: Mapping[str, Value]) -> float:
        product_of = 1.0
        for d in DIMENSIONS:
            if d.name in config:
                product_of *= 2 * place_of(d, config[d.name]) - 1
        return INTERACTION * product_of


def place_of(dimension: Dimension, value: Value) -> float:
    """Place of a value in its range, 0 to 1, on the range's own scale."""
    assert isinstance(value, int | float)
    assert dimension.min is not None
    assert dimension.max is not None
    scale: Callable[[float], float] = math.log if dimension.dtype == "float_log" else float
    low = scale(dimension.min)
    return (scale(value) - low) / (scale(dimension.max) - low)


def value_at(dimension: Dimension, place: float) -> int | float:
    """The value at a place of its range."""
    assert dimension.min is not None
    assert dimension.max is not None
    low, high = dimension.min, dimension.max
    if dimension.dtype == "float_log":
        return float(f"{low * (high / low) ** place:.3g}")
    value = low + place * (high - low)
    return round(value) if dimension.dtype == "int" else float(f"{value:.3g}")


def values_of(dimension: Dimension) -> list[Value]:
    """Its categories, or evenly spaced values of its range."""
    if dimension.categories is not None:
        return dimension.categories
    return list(dict.fromkeys(value_at(dimension, step / STEPS) for step in range(STEPS + 1)))
