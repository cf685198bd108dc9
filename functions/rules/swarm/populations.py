"""Populations: the workers of a swarm that test one hypothesis, in one strategy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

from pydantic import TypeAdapter

from functions.rules.beliefs.strategies import COMPARED
from functions.rules.swarm.shapes import Shape, SwarmStrategy
from state.records import Value


@dataclass(frozen=True)
class Population:
    """Workers that are given configs for one purpose."""

    population_id: str
    strategy: SwarmStrategy
    hypothesis_id: str | None
    """None: they test none."""
    statement: str
    target: int = 0
    """Workers that it is to have."""
    shape: Shape = field(default_factory=lambda: Shape("investigate"))
    """What its configs vary. Without a center it is the best known config."""
    test_spec: Mapping[str, Any] | None = None
    """Its configs are the cells of this test, as many as it needs."""
    constraint: Mapping[str, Any] = field(default_factory=dict)
    """Of its claim, where it is tested so."""
    tested: Shape | None = None
    """Shape of the runs that test its claim, where its strategy looks for the best config; None: it has no claim, or
    the claim is settled."""
    searched: Shape | None = None
    """Shape of the runs that look for the best config, where its strategy tests its claim."""

    @property
    def queued(self) -> Shape:
        """Shape of the configs that wait for its workers."""
        return self.searched or self.shape

    def shape_around(self, best_config: Mapping[str, Value]) -> Shape:
        """Shape of the configs that wait: around the best known config, unless they are compared with its center."""
        if self.queued.strategy in COMPARED and self.queued.center:
            return self.queued
        return replace(self.queued, center=best_config or self.queued.center)

    def text(self) -> str:
        """As it is kept."""
        return _POPULATION.dump_json(self).decode()

    @staticmethod
    def read(text: str) -> Population:
        return _POPULATION.validate_json(text)


_POPULATION = TypeAdapter(Population)


def everyone(tag: str) -> Population:
    """All workers of a tag that has no hypotheses: they look for what lowers the metric, in every dimension."""
    return Population(
        population_id(tag, "all"),
        "investigate",
        None,
        "some values of the dimensions are better than the baseline's",
    )


def population_id(tag: str, purpose: str) -> str:
    """The id of the population for a purpose: a hypothesis, or one of a few words."""
    return f"pop_{sha256(f'{tag} {purpose}'.encode()).hexdigest()[:6]}"
