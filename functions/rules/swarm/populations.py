"""Populations: the workers of a swarm that test one hypothesis, in one strategy."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from functions.rules.swarm.shapes import SwarmStrategy


@dataclass(frozen=True)
class Population:
    """Workers that are given configs for one purpose."""

    population_id: str
    strategy: SwarmStrategy
    hypothesis_id: str | None
    statement: str


def everyone(tag: str) -> Population:
    """All workers of a tag that has no hypotheses: they look for what lowers the metric, in every dimension."""
    return Population(
        f"pop_{sha256(f'{tag} all'.encode()).hexdigest()[:6]}",
        "investigate",
        None,
        "some values of the dimensions are better than the baseline's",
    )
