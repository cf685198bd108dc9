"""Base of the stores: a lab and its keys."""

from __future__ import annotations

from typing import TypeVar

from state.change import Decide
from state.client import Lab

T = TypeVar("T")


class Store:
    """Reads and writes of one subject in a lab."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._keys = lab.keys

    async def change(self, decide: Decide[T], *, in_turn: str | None = None) -> T:
        """Change the lab as `Lab.change`. This process' changes of this subject take turns by a tag's name."""
        return await self._lab.change(decide, in_turn=in_turn and f"{type(self).__name__} {in_turn}")

    async def now(self) -> float:
        """Redis' clock, in seconds since 1970."""
        return await self._lab.now()
