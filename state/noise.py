"""How far runs of the same code differ, for each tag and GPU class: kept up to date by the script that ends a run."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from state.client import Lab
from state.records import Experiment


@dataclass(frozen=True)
class Spread:
    """What all repeats of one tag and GPU class say together."""

    squares: float
    """Sum of the squared deviations from the mean of their own code."""
    df: int
    """Degrees of freedom: runs beyond the first of each code."""
    runs: tuple[str, ...]
    """What is kept of each code that was asked for, as `finish_experiment.lua` was given it; empty: nothing."""


def code_of(e: Experiment, other_key: str | None) -> str:
    """What repeats of one another share: their patch, else their commit, and their constants but the seed.

    Under another comparability key than the tag's main one the same code is another: a longer run is no repeat.
    """
    constants = {name: value for name, value in (e.config_delta or {}).items() if name != "SEED"}
    named = [e.diff_id or e.commit_sha, constants, *([other_key] if other_key else [])]
    code = json.dumps(named, sort_keys=True)
    return f"runs:{hashlib.sha256(code.encode()).hexdigest()[:32]}"


class Noises:
    """The noise of every tag and GPU class of the lab."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    def key(self, tag: str, gpu_class: str | None) -> str:
        """Where it stands."""
        return self._lab.keys("noise", tag, hashlib.sha256((gpu_class or "").encode()).hexdigest()[:16])

    async def spread(self, tag: str, gpu_class: str | None, *codes: str) -> Spread:
        """What is known by now, and of these codes in particular."""
        squares, df, *runs = await self._lab.command(
            "HMGET", self.key(tag, gpu_class), "squares", "df", *codes
        )
        return Spread(float(squares or 0), int(df or 0), tuple(text or "" for text in runs))
