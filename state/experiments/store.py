"""What every part of the experiments' store has: the lab and its keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from state.client import Lab
from state.moves import Arg


class Store:
    """One lab's keys."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._keys = lab.keys

    async def _read(self, commands: Mapping[str, Sequence[Arg]]) -> dict[str, Any]:
        """Several reads in one round trip, by name."""
        return dict(zip(commands, await self._lab.pipeline(list(commands.values())), strict=True))
