"""Samplers: each proposes configs within a shape, given what the runs so far say."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from functions.rules.swarm.buckets import index_of, parts
from functions.rules.swarm.observations import SPREAD, Observation, Scores, scored, shrunk
from functions.rules.swarm.rooms import Room
from functions.rules.swarm.shapes import (
    Freedom,
    Shape,
    SwarmStrategy,
    drawn_config,
    freedoms_of,
    varied_names,
)
from state.policy import Policy, SamplerName
from state.records import Dimension, Value

if TYPE_CHECKING:
    from random import Random

__all__ = [
    "SAMPLERS",
    "Observation",
    "Proposal",
    "Sampler",
    "Thompson",
    "drawn_proposal",
    "priority_of",
    "sampler_of",
]

LEAST: Mapping[SwarmStrategy, float] = {
    "moonshot": 0.1,
    "investigate": 0.3,
    "exploit": 0.4,
    "converge": 0.5,
    "falsify": 0.6,
    "validate": 0.6,
    "decision_sprint": 0.75,
}
"""Lowest priority of a strategy's proposals."""
PROMISING = 0.2
"""What the most promising proposal of a strategy has above its least."""
PRIOR_RUNS = 2.0
"""Runs at the overall mean that are added to each bucket's own."""


@dataclass(frozen=True)
class Proposal:
    """A config to run."""

    config: Mapping[str, Value]
    priority: float
    """0 to 1: how much its result matters; see `priority_of`."""
    why: str
    """A few words for people."""


class Sampler(Protocol):
    """Proposes configs; it keeps nothing between two calls."""

    def propose(
        self,
        dimensions: Sequence[Dimension],
        observations: Sequence[Observation],
        shape: Shape,
        count: int,
        rng: Random,
    ) -> list[Proposal]:
        """`count` configs within the shape, each valid and with every dimension; some may be equal."""
        ...


def priority_of(least: float, promise: float) -> float:
    """least + 0.2 x promise, with the promise from 0 to 1: the chance to beat the mean, or the place in a ranking.

    `least` is 0.1 for a moonshot, 0.3 investigate, 0.4 exploit, 0.5 converge, 0.6 falsify, validate and neighbours of
    the best configs, 0.75 decision_sprint. So only a sprint is worth 4 repeats, and configs that explore get 1.
    """
    return min(1.0, least + PROMISING * promise)


def drawn_proposal(dimensions: Sequence[Dimension], shape: Shape, rng: Random, why: str) -> Proposal:
    """A config at random within a shape, at its strategy's least priority; no model is asked."""
    return Proposal(drawn_config(dimensions, shape, rng), LEAST[shape.strategy], why)


class Thompson:
    """Thompson sampling of each dimension on its own (Thompson 1933), over the dimension's buckets.

    A bucket's mean score is believed to be N(m, s): m is the mean of its n runs, shrunk towards the mean of all runs,
    and s = 0.02 / sqrt(n + 1), where 0.02 is the scores' spread. Each config draws one number for every bucket and
    takes the lowest; a bucket without runs has the prior N(overall mean, 0.02), so that it can win, too. The value is
    drawn uniformly in the bucket that won.
    """

    def propose(
        self,
        dimensions: Sequence[Dimension],
        observations: Sequence[Observation],
        shape: Shape,
        count: int,
        rng: Random,
    ) -> list[Proposal]:
        freedoms, scores = freedoms_of(dimensions, shape), scored(observations)
        beliefs = {f.dimension.name: _beliefs(f, observations, scores) for f in freedoms if f.share}
        return [self._one(freedoms, beliefs, shape, rng) for _ in range(count)]

    def _one(
        self,
        freedoms: Sequence[Freedom],
        beliefs: Mapping[str, Sequence[_Belief]],
        shape: Shape,
        rng: Random,
    ) -> Proposal:
        varied = varied_names(freedoms, shape, rng)
        config = {f.dimension.name: f.standing for f in freedoms}
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
        return Proposal(config, priority_of(LEAST[shape.strategy], promise), f"thompson: {why}")


@dataclass
class _Belief:
    """What is believed of a bucket's mean score."""

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
        """A run is proposed here: until its result is known it counts as the overall mean."""
        self.learn(self.overall)


def _beliefs(freedom: Freedom, observations: Sequence[Observation], scores: Scores) -> list[_Belief]:
    """Beliefs of the buckets that a dimension's room reaches, from all runs that set the dimension."""
    name, index = freedom.dimension.name, index_of(freedom.dimension)
    found = {bucket: _Belief(room, scores.mean) for bucket, room in parts(freedom.room).items()}
    for seen, score in zip(observations, scores.each, strict=True):
        if name not in seen.config:
            continue
        bucket = index(seen.config[name])
        if bucket is not None and (belief := found.get(bucket)):
            belief.learn(score)
    return list(found.values())


SAMPLERS: Mapping[SamplerName, Sampler] = {"thompson": Thompson()}
"""By their name in the policy."""


def sampler_of(policy: Policy) -> Sampler:
    """The sampler that a tag's policy names."""
    return SAMPLERS[policy.sampler]
