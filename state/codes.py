"""The identity of an experiment's code among its repeats."""

from __future__ import annotations

import hashlib
import json

from state.records import Experiment
from state.seeds import unseeded

_JSON = json.JSONEncoder(sort_keys=True)


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
