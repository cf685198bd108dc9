"""Runs that try a dimension on trial: the best known config with another value of this one dimension.

So a gain over the best is due to the dimension alone. Configs of all other runs leave it out: a train.py without the
constant can run them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from functions.rules.swarm.dimensions import same
from functions.rules.swarm.rooms import Room, room_of
from functions.rules.swarm.shapes import CANARY_SHARE, Shape, standing_config
from state.records import Dimension, Value

if TYPE_CHECKING:
    from random import Random

NEAR = 1 / 8
"""Share of the range on either side of the best known value, from which half of the values are drawn."""


def drawn_trial(dimensions: Sequence[Dimension], rng: Random) -> Dimension | None:
    """The dimension that the next run tries, drawn by their shares of the runs; None for a usual run."""
    on_trial = [d for d in dimensions if d.on_trial]
    if not on_trial:
        return None
    place = rng.random()
    for dimension in on_trial:
        place -= CANARY_SHARE if dimension.canary_prob is None else dimension.canary_prob
        if place < 0:
            return dimension
    return None


def trial_config(
    tried: Dimension, dimensions: Sequence[Dimension], best_config: Mapping[str, Value], rng: Random
) -> dict[str, Value]:
    """The best known config (or the middle of the ranges) with another value of this dimension, never its default.

    Once the best config has a value of it, half of the values are drawn near that one.
    """
    base = standing_config(dimensions, Shape("exploit", center=best_config))
    known = best_config.get(tried.name)
    room = _others(tried)
    if isinstance(known, int | float) and not isinstance(known, bool) and room.spans and rng.random() < 0.5:
        room = room.near(known, NEAR)
    return {**base, tried.name: room.drawn(rng)}


def tries(config: Mapping[str, object], dimension: Dimension) -> bool:
    """Whether a config sets the dimension to another value than its default."""
    value = config.get(dimension.name)
    return value is not None and not same(value, dimension.default_value)


def _others(tried: Dimension) -> Room:
    """The values of a dimension without its default."""
    whole = room_of(tried)
    assert whole is not None
    assert tried.default_value is not None
    return whole.without(tried.default_value)
