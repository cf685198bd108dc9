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

    async def _read(self, commands: Mapping[str, Sequence[Arg] | None]) -> dict[str, Any]:
        """Several reads in one round trip, by name; None is not asked, and its answer is None."""
        asked = {name: command for name, command in commands.items() if command is not None}
        answers = await self._lab.pipeline(list(asked.values()))
        return dict.fromkeys(commands) | dict(zip(asked, answers, strict=True))
