"""What identifies the code of an experiment among its repeats."""

from __future__ import annotations

import hashlib
import json

from state.records import Experiment
from state.seeds import unseeded

_JSON = json.JSONEncoder(sort_keys=True)


def code_of(e: Experiment, other_key: str | None) -> str:
    """What repeats of the same code share: the files that were trained.

    Where no worker has checked them out: the patch, else the commit, and the constants except the seed.

    Under a comparability key of its own the same code counts as another: a longer run is no repeat.
    """
    constants = unseeded(e.config_delta)
    code: list[object] = (
        [e.tree_id] if e.tree_id else [e.commit_sha if e.is_unpatched else e.diff_id, constants]
    )
    named = [*code, *([other_key] if other_key else [])]
    return f"runs:{hashlib.sha256(_JSON.encode(named).encode()).hexdigest()[:32]}"


def noise_entry(code: str, worker_id: str | None) -> str:
    """Names the runs by which one adds to the noise: those of its code, in a swarm those of its worker alone."""
    return code if worker_id is None else f"{code}:{worker_id}"
