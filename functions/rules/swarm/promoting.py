"""Promotion: neighbours of the configs that are best by the mean of their runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from functions.rules.swarm.duplicates import canonical, normalised
from functions.rules.swarm.observations import Observation, is_finished, scored, shrunk
from functions.rules.swarm.proposals import ConfigProposal, priority_of
from functions.rules.swarm.rooms import Room
from functions.rules.swarm.shapes import Shape, freedoms_of, varied_names
from state.records import Dimension, Value

if TYPE_CHECKING:
    from random import Random

TOP = 0.2
"""Share of the configs that get neighbours."""
PRIOR_RUNS = 2.0
"""Weight of the overall mean in a config's mean, in runs: it pulls one lucky run more than four good ones."""
NEIGHBOUR = 0.6
"""Lowest priority of a neighbour."""
STEP = 1 / 10
"""Largest distance of a neighbour from its config, as a share of the range."""
OTHER_CATEGORY = 0.3
"""Share of the neighbours for which a categorical is among the dimensions that may differ."""
TRIES = 8
"""Draws until a value differs from the config's own; a short range has few others."""
ANYWHERE = Shape("investigate")


@dataclass
class _Seen:
    config: Mapping[str, Value]
    total: float = 0.0
    runs: int = 0
    finished: bool = False


def promoted(
    observations: Sequence[Observation],
    dimensions: Sequence[Dimension],
    rng: Random,
    shape: Shape = ANYWHERE,
    count: int | None = None,
) -> list[ConfigProposal]:
    """One neighbour of each of the best configs, or of `count` random ones of them; the best config's comes first.

    A neighbour differs in one or two free dimensions of the shape, and honours the shape's constraint.
    """
    best = top_configs(observations, dimensions)
    places: Sequence[int] = range(len(best))
    if count is not None and count < len(best):
        places = sorted(rng.sample(places, count))
    return [
        ConfigProposal(
            _neighbour(best[place], dimensions, shape, rng),
            priority_of(NEIGHBOUR, 1 - place / len(best)),
            f"near the config that is number {place + 1} by its mean",
        )
        for place in places
    ]


def top_configs(
    observations: Sequence[Observation], dimensions: Sequence[Dimension]
) -> list[Mapping[str, Value]]:
    """The best fifth of the configs that finished a run, by their shrunken mean score; the best first."""
    scores = scored(observations)
    found: dict[str, _Seen] = {}
    for seen, score in zip(observations, scores.each, strict=True):
        if not seen.pending:
            config = normalised(seen.config, dimensions)
            one = found.setdefault(canonical(config), _Seen(config))
            one.total, one.runs = one.total + score, one.runs + 1
            one.finished = one.finished or is_finished(seen)
    finished = [one for one in found.values() if one.finished]
    finished.sort(key=lambda one: shrunk(one.total, one.runs, scores.mean, PRIOR_RUNS))
    return [one.config for one in finished[: math.ceil(TOP * len(finished))]]


def _neighbour(
    config: Mapping[str, Value], dimensions: Sequence[Dimension], shape: Shape, rng: Random
) -> dict[str, Value]:
    wide = replace(shape, strategy="investigate", center=config)
    freedoms = freedoms_of(dimensions, wide)
    varied = varied_names(freedoms, wide, rng)
    ranges = [f.dimension.name for f in freedoms if f.dimension.name in varied and f.room.spans]
    others = [f.dimension.name for f in freedoms if f.dimension.name in varied and f.room.choices]
    may_move = ranges + [name for name in others if not ranges or rng.random() < OTHER_CATEGORY]
    moved = rng.sample(may_move, min(len(may_move), rng.choice((1, 2))))
    return {
        f.dimension.name: _moved(f.room, f.fixed, rng) if f.dimension.name in moved else f.fixed
        for f in freedoms
    }


def _moved(room: Room, value: Value, rng: Random) -> Value:
    """Another value near this one, or any other value of a choice."""
    near = room if room.choices or isinstance(value, bool | str) else room.near(value, STEP)
    drawn = value
    for _ in range(TRIES):
        drawn = near.drawn(rng)
        if drawn != value or type(drawn) is not type(value):
            break
    return drawn
