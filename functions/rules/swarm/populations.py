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
    """What the runs vary that test its claim; None: all of its runs do, or it has no claim."""

    def shape_around(self, best_config: Mapping[str, Value]) -> Shape:
        """What its configs vary, around the best known config unless they are compared with its own center."""
        if self.strategy in COMPARED and self.shape.center:
            return self.shape
        return replace(self.shape, center=best_config or self.shape.center)

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
