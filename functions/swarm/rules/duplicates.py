"""How often a config may run, and its fingerprint: equal for configs that set a train.py to the same values."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from functions.swarm.rules.dimensions import LARGEST_INT, same
from functions.swarm.rules.shapes import SwarmStrategy
from state.policy import Duplicates
from state.records import Dimension, Value

REPEATS = ((0.85, 4), (0.70, 3), (0.55, 2))
"""Lowest priority for a number of runs; 1 run below them all."""
REPEATING: frozenset[SwarmStrategy] = frozenset({"falsify", "validate", "decision_sprint"})
"""Strategies that compare means of few configs, and so need repeats."""


@dataclass(frozen=True)
class RunCounts:
    trials: int = 0
    """Runs that ended in any way."""
    in_flight: int = 0
    """Runs that have not ended, and queued proposals."""

    @property
    def all(self) -> int:
        return self.trials + self.in_flight


def desired_repeats(priority: float) -> int:
    """Number of runs that a priority (0 to 1) deserves."""
    return next((repeats for least, repeats in REPEATS if priority >= least), 1)


def may_run(
    tried: RunCounts,
    priority: float,
    strategy: SwarmStrategy,
    duplicates: Duplicates,
    *,
    is_of_claim: bool = False,
) -> bool:
    """Whether a config may run once more.

    `max_trials` holds under every strategy and counts runs in flight, too. It is the only limit of a repeating
    strategy: workers would be idle if one repeat waited for another. Other strategies run a config as often as its
    priority deserves, and at most `max_inflight` times at once.

    `is_of_claim`: no limit holds for configs that test a claim beside reference runs. A dimension with few values has
    few configs, and limits would run its worst values as often as its best.
    """
    if is_of_claim:
        return True
    if tried.all >= duplicates.max_trials:
        return False
    if strategy in REPEATING:
        return True
    return tried.in_flight < duplicates.max_inflight and tried.all < desired_repeats(priority)


def canonical(config: Mapping[str, Value]) -> str:
    """A config as JSON: names sorted, no spaces, floats as `repr`, 0.0 for -0.0. 1 and 1.0 differ here."""
    plain = {name: value + 0.0 if type(value) is float else value for name, value in config.items()}
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)


def normalised(config: Mapping[str, Value], dimensions: Sequence[Dimension]) -> dict[str, Value]:
    """A config with numbers in the types of its dimensions: 1.0 for a float, 2 for an int.

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
