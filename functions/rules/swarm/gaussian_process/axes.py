"""Axes: values of dimensions as numbers, between which a model measures distances."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from functions.rules.swarm.gaussian_process.regression import Floats
from functions.rules.swarm.shapes import Freedom
from state.records import Dimension, Value

if TYPE_CHECKING:
    from numpy.random import Generator


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
            indices = {_key(each): float(n) for n, each in enumerate(self._dimension.categories or ())}
            return np.array(
                [UNKNOWN if each is None else indices.get(_key(each), UNKNOWN) for each in values]
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
            assert self._dimension.min is not None
            assert self._dimension.max is not None
            low, high = float(self._dimension.min), float(self._dimension.max)
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


def _key(value: Value) -> tuple[bool, Value]:
    """Equal for values that are the same: in Python true is 1."""
    return isinstance(value, bool), value


def _numbers(categories: Sequence[Value]) -> list[float]:
    return [float(each) for each in categories if not isinstance(each, bool | str)]
