"""How often one config is run: more often where its result matters more."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from functions.rules.swarm.dimensions import LARGEST_INT, same
from functions.rules.swarm.shapes import SwarmStrategy
from state.policy import Duplicates
from state.records import Dimension, Value

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


def canonical(config: Mapping[str, Value]) -> str:
    """A config as JSON in one spelling: names sorted, no spaces, floats as `repr`, 0.0 for -0.0.

    1 and 1.0 differ here, because a config alone does not say which of them is a float.
    """
    plain = {name: value + 0.0 if type(value) is float else value for name, value in config.items()}
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)


def normalised(config: Mapping[str, Value], dimensions: Sequence[Dimension]) -> dict[str, Value]:
    """A config with numbers in the types of its dimensions: 1 is 1.0 where a float is varied, 2.0 is 2 for an int.

    Values outside a range and names without a dimension stay as they are: a tag's dimensions may have changed.
    """
    known = {d.name: d for d in dimensions}
    return {
        name: _typed(known[name], value) if name in known else value  # true is never 1
        for name, value in config.items()
    }


def fingerprint(config: Mapping[str, Value], dimensions: Sequence[Dimension]) -> str:
    """SHA-256 of the normalised config's canonical text, 64 hexadecimal digits."""
    return hashlib.sha256(canonical(normalised(config, dimensions)).encode()).hexdigest()


def _typed(dimension: Dimension, value: Value) -> Value:
    if dimension.categories is not None:
        return next((category for category in dimension.categories if same(category, value)), value)
    if isinstance(value, bool | str) or abs(value) > LARGEST_INT:
        return value
    if dimension.dtype != "int":
        return float(value)
    return int(value) if value == int(value) else value
