"""Names of seeds among a script's constants. Code that differs only in seeds is the same code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_OF_OTHERS = frozenset(
    {
        *("n", "num", "number", "count", "len", "length", "size"),
        *("max", "min", "text", "tokens", "every", "path", "dir"),
    }
)
"""Words in names that are no seeds: `N_SEEDS`, `SEED_LENGTH`, `seed_text`."""


def is_seed(name: str) -> bool:
    """Whether this is the name of a seed: `SEED`, `data_seed`, `manualSeed`, `RANDOM_STATE`, `rng_key`."""
    words = [word.lower() for word in _WORD.findall(name)]
    if not _OF_OTHERS.isdisjoint(words):
        return False
    joined = "_".join(words)
    has_word = any(word.endswith(("seed", "seeds")) or word in ("rng", "prng") for word in words)
    return has_word or "random_state" in joined or "randomstate" in words


def unseeded(constants: Mapping[str, Any] | None) -> dict[str, Any]:
    """Constants without the seeds among them."""
    return {name: value for name, value in (constants or {}).items() if not is_seed(name)}
