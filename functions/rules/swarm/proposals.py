"""What samplers propose: configs to run, with how much their results matter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from functions.rules.swarm.observations import Observation
from functions.rules.swarm.shapes import Shape, SwarmStrategy, drawn_config
from state.records import Dimension, Value

if TYPE_CHECKING:
    from random import Random

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


@dataclass(frozen=True)
class ConfigProposal:
    """A config to run."""

    config: Mapping[str, Value]
    priority: float
    """0 to 1: how much its result matters; see `priority_of`."""
    why: str
    """A few words for people."""


class ConfigSampler(Protocol):
    """Proposes configs; it keeps nothing between two calls."""

    def propose(
        self,
        dimensions: Sequence[Dimension],
        observations: Sequence[Observation],
        shape: Shape,
        count: int,
        rng: Random,
    ) -> list[ConfigProposal]:
        """`count` configs within the shape, each valid and with every dimension; some may be equal.

        Observations that are pending come oldest first, and what waits for a worker behind them.
        """
        ...

    def believed_best(
        self, dimensions: Sequence[Dimension], observations: Sequence[Observation]
    ) -> Mapping[str, Value] | None:
        """The presumed best config, which may never have run; None: the tag's best."""
        return None


def priority_of(least: float, promise: float) -> float:
    """least + 0.2 x promise, with the promise from 0 to 1: the chance to beat the mean, or the place in a ranking.

    `least` is 0.1 for a moonshot, 0.3 investigate, 0.4 exploit, 0.5 converge, 0.6 falsify, validate and neighbours of
    the best configs, 0.75 decision_sprint. So only a sprint is worth 4 repeats, and configs that explore get 1.
    """
    return min(1.0, least + PROMISING * promise)


def drawn_proposal(dimensions: Sequence[Dimension], shape: Shape, rng: Random, why: str) -> ConfigProposal:
    """A config at random within a shape, at its strategy's least priority; no model is asked."""
    return ConfigProposal(drawn_config(dimensions, shape, rng), LEAST[shape.strategy], why)


class AtRandom(ConfigSampler):
    """Draws configs at random within a shape, whatever was measured. It knows no best config.

    What looks for good values would seldom draw where they are bad, and a claim could not be judged there.
    """

    def propose(
        self,
        dimensions: Sequence[Dimension],
        observations: Sequence[Observation],
        shape: Shape,
        count: int,
        rng: Random,
    ) -> list[ConfigProposal]:
        return [drawn_proposal(dimensions, shape, rng, "drawn at random") for _ in range(count)]
