"""The buckets of a dimension: parts of its range of equal width in its own scale, or one for each category."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

from functions.rules.swarm.rooms import Numeric, Room, Span, at
from state.records import Dimension, Value

BUCKETS = 8
"""Of a range; an int with fewer values has one for each."""

Index = Callable[[Value], int | None]
"""The number of the bucket in which a value lies; None where it is none of the dimension's values."""


def index_of(dimension: Dimension) -> Index:
    """How a dimension's values are put into buckets."""
    if dimension.categories is not None:
        # in Python true is 1
        places = {
            (isinstance(category, bool), category): n for n, category in enumerate(dimension.categories)
        }
        return lambda value: places.get((isinstance(value, bool), value))
    low, high = dimension.min, dimension.max
    assert low is not None
    assert high is not None
    others = _firsts(dimension)[1:]
    return lambda value: (
        bisect_right(others, value) if not isinstance(value, bool | str) and low <= value <= high else None
    )


def parts(room: Room) -> dict[int, Room]:
    """A room split by the buckets of its dimension; buckets in which it has no value are left out."""
    dimension, index = room.dimension, index_of(room.dimension)
    if room.choices:
        chosen: dict[int, list[Value]] = {}
        for choice in room.choices:
            if (bucket := index(choice)) is not None:
                chosen.setdefault(bucket, []).append(choice)
        return {bucket: replace(room, choices=tuple(values)) for bucket, values in chosen.items()}
    cut = {bucket: room.inside(*bounds) for bucket, bounds in enumerate(_bounds(dimension))}
    return {bucket: part for bucket, part in cut.items() if part is not None}


def _bounds(dimension: Dimension) -> Iterator[Span]:
    """The lowest and the highest number of each bucket; two buckets of floats share the one between them."""
    assert dimension.max is not None
    whole = dimension.dtype == "int"
    for first, following in pairwise([*_firsts(dimension), dimension.max + whole]):
        yield first, following - whole


def _firsts(dimension: Dimension) -> list[Numeric]:
    """The lowest number of each bucket of a range."""
    low, high = dimension.min, dimension.max
    assert low is not None
    assert high is not None
    if dimension.dtype != "int":
        return [low, *(at(dimension, n / BUCKETS) for n in range(1, BUCKETS))]
    values = int(high) - int(low) + 1
    count = min(BUCKETS, values)
    return [int(low) - (-n * values // count) for n in range(count)]  # rounded up
