"""What identifies the code of an experiment among its repeats."""

from __future__ import annotations

import hashlib
import json

from state.records import Experiment


def code_of(e: Experiment, other_key: str | None) -> str:
    """What repeats of the same code share: the patch, else the commit, and the constants except the seed.

    Under a comparability key of its own the same code counts as another: a longer run is no repeat.
    """
    constants = {name: value for name, value in (e.config_delta or {}).items() if name != "SEED"}
    named = [e.diff_id or e.commit_sha, constants, *([other_key] if other_key else [])]
    code = json.dumps(named, sort_keys=True)
    return f"runs:{hashlib.sha256(code.encode()).hexdigest()[:32]}"
