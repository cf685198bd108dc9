"""Which sampler proposes the configs of a shape, and Thompson sampling."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from functions.swarm.rules.dimensions import ends_of, key_of
from functions.swarm.rules.handing_out import fits
from functions.swarm.rules.proposals import (
    LEAST,
    SPREAD,
    AtRandom,
    ConfigProposal,
    ConfigSampler,
    History,
    Scores,
    priority_of,
    scored,
    shrunk,
    value_in,
)
from functions.swarm.rules.rooms import Numeric, Room, Span, at
from functions.swarm.rules.shapes import Freedom, Shape, SwarmStrategy, freedoms_of, varied_names
from state.errors import Conflict, Invalid
from state.records import Dimension, Value

if TYPE_CHECKING:
    from random import Random

# -- Thompson sampling of each dimension by itself: the sampler of the published swarm.

PRIOR_RUNS = 2.0
"""Runs at the overall mean that are added to each bucket's own."""


class Thompson(ConfigSampler):
    """Thompson sampling of each dimension on its own (Thompson 1933), over the dimension's buckets.

    A bucket's mean score is believed to be N(m, s): m is the mean of its n runs, shrunk towards the mean of all runs,
    and s = 0.02 / sqrt(n + 1), where 0.02 is the scores' spread. Each config draws one number for every bucket and
    takes the lowest; a bucket without runs has the prior N(overall mean, 0.02), so that it can win, too. The value is
    drawn uniformly in the bucket that won.
    """

    def propose(
        self, dimensions: Sequence[Dimension], observations: History, shape: Shape, count: int, rng: Random
    ) -> list[ConfigProposal]:
        freedoms, scores = freedoms_of(dimensions, shape), scored(observations)
        beliefs = {f.dimension.name: _beliefs(f, observations, scores) for f in freedoms if f.share}
        return [self._one(freedoms, beliefs, shape, rng) for _ in range(count)]

    def _one(
        self,
        freedoms: Sequence[Freedom],
        beliefs: Mapping[str, Sequence[_BucketBelief]],
        shape: Shape,
        rng: Random,
    ) -> ConfigProposal:
        varied = varied_names(freedoms, shape, rng)
        config = {f.dimension.name: f.fixed for f in freedoms}
        untried, gain = list[str](), 0.0
        for name in (name for name in config if name in varied):
            winner = min(beliefs[name], key=lambda belief: belief.drawn(rng))
            config[name] = winner.room.drawn(rng)
            gain += winner.gain
            if not winner.runs:
                untried.append(name)
            winner.pretend()
        promise = 0.5 * (1 + math.erf(gain / SPREAD / math.sqrt(2)))
        why = "new values of " + ", ".join(untried[:3]) if untried else f"promise {promise:.2f}"
        return ConfigProposal(config, priority_of(LEAST[shape.strategy], promise), f"thompson: {why}")


@dataclass
class _BucketBelief:
    """The belief in a bucket's mean score."""

    room: Room
    """The values of the bucket that the shape leaves."""
    overall: float
    runs: int = 0
    total: float = 0.0

    @property
    def mean(self) -> float:
        return shrunk(self.total, self.runs, self.overall, PRIOR_RUNS)

    @property
    def gain(self) -> float:
        """How much better than the overall mean."""
        return self.overall - self.mean

    def drawn(self, rng: Random) -> float:
        return rng.gauss(self.mean, SPREAD / math.sqrt(self.runs + 1))

    def learn(self, score: float) -> None:
        self.runs += 1
        self.total += score

    def pretend(self) -> None:
        """Count a proposed run as the overall mean until its result is known."""
        self.learn(self.overall)


def _beliefs(freedom: Freedom, observations: History, scores: Scores) -> list[_BucketBelief]:
    """Beliefs of the buckets that a dimension's room reaches, from all runs that set the dimension."""
    index = index_of(freedom.dimension)
    found = {bucket: _BucketBelief(room, scores.mean) for bucket, room in parts(freedom.room).items()}
    for seen, score in zip(observations, scores.each, strict=True):
        value = value_in(seen.config, freedom.dimension)
        bucket = None if value is None else index(value)
        if bucket is not None and (belief := found.get(bucket)):
            belief.learn(score)
    return list(found.values())


BUCKETS = 8
"""Of a range; an int with fewer values has one for each."""

Index = Callable[[Value], int | None]
"""Number of the bucket that holds a value; None if the dimension does not have the value."""


def index_of(dimension: Dimension) -> Index:
    """The function that puts a dimension's values into buckets."""
    if dimension.categories is not None:
        places = {key_of(category): n for n, category in enumerate(dimension.categories)}
        return lambda value: places.get(key_of(value))
    low, high = ends_of(dimension)
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
    whole = dimension.dtype == "int"
    for first, following in pairwise([*_firsts(dimension), ends_of(dimension)[1] + whole]):
        yield first, following - whole


def _firsts(dimension: Dimension) -> list[Numeric]:
    """The lowest number of each bucket of a range."""
    low, high = ends_of(dimension)
    if dimension.dtype != "int":
        return [low, *(at(dimension, n / BUCKETS) for n in range(1, BUCKETS))]
    values = int(high) - int(low) + 1
    count = min(BUCKETS, values)
    return [int(low) - (-n * values // count) for n in range(count)]  # rounded up


# -- Which sampler proposes the configs of a shape.

SEARCHING: frozenset[SwarmStrategy] = frozenset({"exploit", "converge", "investigate", "moonshot"})
"""Strategies that look for good configs, where they are not of a claim; the others test something."""


def sampler_of(name: str, shape: Shape) -> ConfigSampler:
    """The sampler of this name where good configs are looked for.

    What tests a claim maps its dimensions, the bad values too. Where no values are claimed to be better, values are
    drawn at random.
    """
    if shape.strategy in SEARCHING and not shape.is_of_claim:
        return sampler_named(name)
    return Thompson() if shape.constraint else AtRandom()


def _gaussian_process() -> ConfigSampler:
    # numpy and scipy take most of a second to import, and few processes propose configs
    from functions.swarm.rules.gaussian_search import GaussianProcess

    return GaussianProcess()


SAMPLERS: Mapping[str, Callable[[], ConfigSampler]] = {
    "gaussian_process": _gaussian_process,
    "thompson": Thompson,
}
OWN: dict[str, ConfigSampler] = {}
"""Samplers of your own, see `kernel.own.load`."""


def sampler_named(name: str) -> ConfigSampler:
    """A sampler of Nightjar's or of your own. Raises Invalid: there is none with this name."""
    if name in OWN:
        return _Checked(name, OWN[name])
    if name not in SAMPLERS:
        raise Invalid(f"there is no sampler {name!r}", hint=f"name one of {', '.join([*SAMPLERS, *OWN])}")
    return SAMPLERS[name]()


@dataclass(frozen=True)
class _Checked(ConfigSampler):
    """A sampler of your own. What it answers is checked."""

    name: str
    inner: ConfigSampler

    def propose(
        self, dimensions: Sequence[Dimension], observations: History, shape: Shape, count: int, rng: Random
    ) -> list[ConfigProposal]:
        with self._answering():
            found = [*self.inner.propose(dimensions, observations, shape, count, rng)][:count]
            if not all(fits(one.config, dimensions) and 0 <= one.priority <= 1 for one in found):
                raise ValueError("a config that does not fit the dimensions, or a priority not in 0 to 1")
            return found

    def believed_best(
        self, dimensions: Sequence[Dimension], observations: History
    ) -> Mapping[str, Value] | None:
        with self._answering():
            best = self.inner.believed_best(dimensions, observations)
            if best is not None and not fits(best, dimensions):
                raise ValueError("a config that does not fit the dimensions")
            return best

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except Exception as problem:  # a foreign class may raise anything
            raise Conflict(
                f"the sampler {self.name!r} failed with {type(problem).__name__}: {problem}",
                hint="repair it, or choose another one with POST /api/search/set-policy",
                fields={"code": "broken_sampler"},
            ) from problem
