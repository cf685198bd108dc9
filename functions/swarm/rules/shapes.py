"""The shape of a population's configs: which dimensions vary, in which ranges, and the values of the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from functions.swarm.rules.dimensions import ends_of, same
from functions.swarm.rules.rooms import Allowed, Room, room_of, sections_of_claim
from state.records import Dimension, Value

if TYPE_CHECKING:
    from random import Random


SwarmStrategy = Literal[
    "exploit", "investigate", "falsify", "validate", "decision_sprint", "moonshot", "converge"
]

NEAR: Mapping[SwarmStrategy, float] = {"exploit": 1 / 8, "converge": 1 / 64}
"""Strategies that stay near the best known config, with their reach to either side as a share of the range."""
OTHER_CATEGORY: Mapping[SwarmStrategy, float] = {"exploit": 0.25, "converge": 0.05}
"""Share of their configs that change a categorical, or an int of few values."""
LEVELS = (0.1, 0.4, 0.9)
"""Places in a range at which decision_sprint runs: few, one in each section, none in the middle."""
OUTER = 1 / 8
"""Share of a range at either end from which moonshots are drawn."""
CANARY_SHARE = 0.12
"""Share of configs that vary a canary, if it names no other share."""


@dataclass(frozen=True)
class Shape:
    """Which dimensions the configs of a population vary, and how."""

    strategy: SwarmStrategy
    """`exploit`, `converge`: near `center`; anywhere in dimensions without a value there.
    `investigate`: the whole ranges of the free dimensions.
    `falsify`: one free dimension in each config, the others at the center.
    `validate`: the cells of a test; without `free`, the dimensions of the constraint.
    `decision_sprint`: few levels of the free dimensions, repeated; without `free`, the center alone.
    `moonshot`: the ends of the free ranges.
    """
    free: tuple[str, ...] | None = None
    """Dimensions that may vary; None: all that are not frozen."""
    constraint: Mapping[str, Allowed] = field(default_factory=dict)
    """Allowed values of dimensions, varied or not. A frozen dimension keeps its value anyway."""
    center: Mapping[str, Value] = field(default_factory=dict)
    """Values of the dimensions that do not vary: the best known config, or the reference config."""
    at_most: int | None = None
    """Most dimensions that one config varies; None: no limit."""
    first: tuple[str, ...] = ()
    """Dimensions that are preferred where `at_most` limits them."""
    lacking: Mapping[str, float] = field(default_factory=dict)
    """Weights of the sections of a claim's one dimension; empty: all are drawn equally often."""

    @property
    def is_of_claim(self) -> bool:
        """Its configs explore the dimensions of a claim, for comparison with its center."""
        return self.strategy == "investigate" and self.free is not None and bool(self.center)

    @property
    def is_compared(self) -> bool:
        """Its configs vary named dimensions for comparison with its center."""
        is_apart = self.strategy in ("investigate", "falsify", "decision_sprint")
        return is_apart and self.free is not None and bool(self.center)


@dataclass(frozen=True)
class Freedom:
    """How a shape lets one dimension vary."""

    room: Room
    """Its values in configs that vary it."""
    fixed: Value
    """Its value in the other configs."""
    share: float
    """Share of configs that vary it, 0 to 1."""

    @property
    def dimension(self) -> Dimension:
        return self.room.dimension


def drawn_config(dimensions: Sequence[Dimension], shape: Shape, rng: Random) -> dict[str, Value]:
    """A config at random within a shape. It has a valid value for each dimension that is not on trial.

    A run that is compared with the center lies in each section of a range with the same probability, or more often
    where evidence lacks. Uniform draws would leave few runs at the ends, where effects are often largest.
    """
    freedoms = freedoms_of(dimensions, shape)
    varied = varied_names(freedoms, shape, rng)
    return {
        f.dimension.name: _drawn(f, shape, rng) if f.dimension.name in varied else f.fixed for f in freedoms
    }


def _drawn(freedom: Freedom, shape: Shape, rng: Random) -> Value:
    room, dimension = freedom.room, freedom.dimension
    if not shape.is_compared:
        return room.drawn(rng)
    sections = sections_of_claim(dimension, shape.constraint.get(dimension.name))
    parts = {name: part for name, each in sections.items() if (part := room.within(each)) is not None}
    weights = [shape.lacking.get(name, 0.0) for name in parts]
    return rng.choices([*parts.values()] or [room], weights if any(weights) else None)[0].drawn(rng)


def standing_config(dimensions: Sequence[Dimension], shape: Shape) -> dict[str, Value]:
    """The config of a shape in which no dimension varies."""
    return {f.dimension.name: f.fixed for f in freedoms_of(dimensions, shape)}


def freedoms_of(dimensions: Sequence[Dimension], shape: Shape) -> list[Freedom]:
    """How a shape lets each dimension vary, in their order, without dimensions on trial."""
    return [_freedom(dimension, shape) for dimension in dimensions if not dimension.on_trial]


def varied_names(freedoms: Sequence[Freedom], shape: Shape, rng: Random) -> set[str]:
    """Names of the dimensions that one config varies, drawn by their shares; at most one under falsify."""
    varied = [f.dimension.name for f in freedoms if f.share and rng.random() < f.share]
    if shape.strategy == "falsify" and varied:
        return {rng.choice(varied)}
    if shape.at_most is not None and len(varied) > shape.at_most:
        first = [name for name in varied if name in shape.first][: shape.at_most]
        others = [name for name in varied if name not in first]
        return {*first, *rng.sample(others, shape.at_most - len(first))}
    return set(varied)


def contradictions(dimensions: Sequence[Dimension], shape: Shape) -> Iterator[str]:
    """Parts of a constraint that no config can satisfy, one sentence each. `freedoms_of` ignores them."""
    known = {d.name: d for d in dimensions}
    for name, allowed in shape.constraint.items():
        dimension = known.get(name)
        if dimension is None:
            yield f"there is no dimension {name!r}"
        elif (room := room_of(dimension, allowed)) is None:
            yield f"{name!r} has none of the values that the constraint allows"
        elif (
            dimension.frozen and dimension.frozen_value is not None and not room.holds(dimension.frozen_value)
        ):
            yield f"{name!r} is frozen at {dimension.frozen_value!r}, which the constraint does not allow"


def _freedom(dimension: Dimension, shape: Shape) -> Freedom:
    if dimension.frozen and dimension.frozen_value is not None:
        return Freedom(Room(dimension, choices=(dimension.frozen_value,)), dimension.frozen_value, 0.0)
    whole = room_of(dimension)
    assert whole is not None
    room = room_of(dimension, shape.constraint.get(dimension.name)) or whole
    center = shape.center.get(dimension.name, dimension.default_value)
    known = None if center is None else room.nearest(center)
    fixed = room.middle() if known is None else known
    if not _is_free(dimension, shape):
        return Freedom(room, fixed, 0.0)
    share = 1.0
    if dimension.is_canary:
        share = CANARY_SHARE if dimension.canary_prob is None else dimension.canary_prob
    if known is not None and shape.strategy in NEAR:
        if room.choices:
            share *= OTHER_CATEGORY[shape.strategy]
        elif not isinstance(known, bool | str):
            room = room.near(known, NEAR[shape.strategy])
            if not _has_neighbours(dimension, NEAR[shape.strategy]):
                share *= OTHER_CATEGORY[shape.strategy]
    if shape.strategy == "moonshot":
        room = room.extremes(OUTER)
    if shape.strategy == "decision_sprint" and room.spans:
        levels = dict.fromkeys(room.level(place) for place in LEVELS)
        room = Room(dimension, choices=tuple(levels))
    if room.single:
        return Freedom(room, fixed, 0.0)
    if shape.is_compared and shape.free is not None and len(shape.free) == 1:
        room = room.without(fixed)  # else the config could be the center that it is compared with
    return Freedom(room, fixed, share)


def near_by(dimension: Dimension, a: Value | None, b: Value | None, strategy: SwarmStrategy) -> bool:
    """Whether two values of a dimension are within the reach of a strategy that stays near the best."""
    if a is None or b is None:
        return a is b
    room = room_of(dimension)
    assert room is not None
    if room.choices or isinstance(b, bool | str) or not _has_neighbours(dimension, NEAR[strategy]):
        return same(a, b)
    return room.near(b, NEAR[strategy]).holds(a)


def _has_neighbours(dimension: Dimension, share: float) -> bool:
    """Whether neighbouring ints lie within this share of the range; if not, ints are treated like categories."""
    if dimension.dtype != "int":
        return True
    low, high = ends_of(dimension)
    return share * (high - low) >= 1


def _is_free(dimension: Dimension, shape: Shape) -> bool:
    if shape.free is not None:
        return dimension.name in shape.free
    if shape.strategy == "validate" and shape.constraint:
        return dimension.name in shape.constraint
    return shape.strategy != "decision_sprint"
