"""Runs that try a dimension on trial: the best known config with this one dimension elsewhere.

What such a run gains beside the best is the dimension's own: nothing else is different. Configs of all other runs
leave the dimension out, so that a train.py without the constant can run them.
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
"""Share of a range, on either side of the best known config's value, in which half of the further trials lie."""


def drawn_trial(dimensions: Sequence[Dimension], rng: Random) -> Dimension | None:
    """The dimension that the next run tries, each in its share of the runs; None: it tries none."""
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
    """The best known config, the middle of the ranges where none is known, with another value of this dimension.

    Never its default; once the best config has a value of it, half of the trials are near that one.
    """
    base = standing_config(dimensions, Shape("exploit", center=best_config))
    known = best_config.get(tried.name)
    room = _others(tried)
    if isinstance(known, int | float) and not isinstance(known, bool) and room.spans and rng.random() < 0.5:
        room = room.near(known, NEAR)
    return {**base, tried.name: room.drawn(rng)}


def tries(config: Mapping[str, object], dimension: Dimension) -> bool:
    """Whether a run with this config has varied the dimension."""
    value = config.get(dimension.name)
    return value is not None and not same(value, dimension.default_value)


def _others(tried: Dimension) -> Room:
    """Its values but for the default."""
    whole = room_of(tried)
    assert whole is not None
    assert tried.default_value is not None
    return whole.without(tried.default_value)
