"""The fingerprint of a config: equal for configs that set a train.py to the same values."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from functions.rules.swarm.dimensions import LARGEST_INT, same
from state.records import Dimension, Value


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
