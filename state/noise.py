"""Spread of runs of the same code, for each tag and GPU class. The script that ends a run updates it.

One hash has the sums and the runs of each code. In a swarm it has the runs of each worker and code, and only these
add to the sums. Code that differs only in the seeds among its constants is the same code.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from state.keys import Keys
from state.records import Experiment

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


_JSON = json.JSONEncoder(sort_keys=True)


@lru_cache
def class_id(gpu_class: str | None) -> str:
    """A GPU class as part of a key."""
    return hashlib.sha256((gpu_class or "").encode()).hexdigest()[:16]


def noise_key(keys: Keys, tag: str, gpu_class: str | None) -> str:
    """Key of the noise of a tag and GPU class."""
    return f"{{{keys.lab}}}:noise:{tag}:{class_id(gpu_class)}"


def runs_at(noise: str, code: str) -> str:
    """Key of the list of one code's runs, beside the noise."""
    return f"{noise}:{code}"


def code_of(e: Experiment, other_key: str | None) -> str:
    """The identity of the code of an experiment: a digest of the trained files.

    Before a worker has checked the files out: a digest of the patch or commit, and of the constants without seeds.

    Under another comparability key, the same code has another identity: a longer run is no repeat.
    """
    constants = unseeded(e.config_delta)
    code: list[object] = (
        [e.tree_id] if e.tree_id else [e.commit_sha if e.is_unpatched else e.diff_id, constants]
    )
    named = [*code, *([other_key] if other_key else [])]
    return f"runs:{hashlib.sha256(_JSON.encode(named).encode()).hexdigest()[:32]}"


def noise_entry(code: str, worker_id: str | None) -> str:
    """Name of the runs that one run is averaged with for the noise: those of its code, in a swarm only of its
    worker."""
    return code if worker_id is None else f"{code}:{worker_id}"
