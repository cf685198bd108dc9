"""How often one config is run: more often where its result matters more."""

from __future__ import annotations

from dataclasses import dataclass

from functions.rules.swarm.shapes import SwarmStrategy
from state.policy import Duplicates

REPEATS = ((0.85, 4), (0.70, 3), (0.55, 2))
"""Lowest priority, and how many runs a config of that priority is given; 1 below them all."""
REPEATING: frozenset[SwarmStrategy] = frozenset({"falsify", "validate", "decision_sprint"})
"""Strategies that compare means of few configs: repeats are their purpose."""


@dataclass(frozen=True)
class Tried:
    """How often one config was run."""

    trials: int = 0
    """Runs that ended, whichever way."""
    in_flight: int = 0
    """Runs that were handed out and have not ended, and proposals that wait."""

    @property
    def all(self) -> int:
        return self.trials + self.in_flight


def desired_repeats(priority: float) -> int:
    """Runs that a config of this priority (0 to 1) is worth."""
    return next((repeats for least, repeats in REPEATS if priority >= least), 1)


def may_run(
    tried: Tried,
    priority: float,
    strategy: SwarmStrategy,
    duplicates: Duplicates,
    *,
    is_of_claim: bool = False,
) -> bool:
    """Whether a config may be run once more.

    `is_of_claim`: it tests a claim beside reference runs, and may be run any number of times. A claim about a
    dimension of few values has few configs, and limits would have its worst values run as often as its best.

    `max_trials` holds under every strategy, and counts runs that have not ended. Under a repeating strategy it is the
    only limit: the few configs are worth all their trials, and workers would stand idle if one repeat waited for the
    result of another. Under the others a config is run as often as its priority is worth, and `max_inflight` times at
    once.
    """
    if is_of_claim:
        return True
    if tried.all >= duplicates.max_trials:
        return False
    if strategy in REPEATING:
        return True
    return tried.in_flight < duplicates.max_inflight and tried.all < desired_repeats(priority)
