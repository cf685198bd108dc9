"""How far runs of the same code differ, for each tag and GPU class: kept up to date by the script that ends a run."""

from __future__ import annotations

import hashlib

from state.client import Lab
from state.facts import Spread
from state.keys import Keys


def noise_key(keys: Keys, tag: str, gpu_class: str | None) -> str:
    """Where the noise of a tag and GPU class stands."""
    return keys("noise", tag, hashlib.sha256((gpu_class or "").encode()).hexdigest()[:16])


class Noises:
    """The noise of every tag and GPU class of the lab."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    async def spread(self, tag: str, gpu_class: str | None, *codes: str) -> Spread:
        """What is known by now, and of these codes in particular."""
        squares, df, *runs = await self._lab.command(
            "HMGET", noise_key(self._lab.keys, tag, gpu_class), "squares", "df", *codes
        )
        return Spread(float(squares or 0), int(df or 0), tuple(text or "" for text in runs))
