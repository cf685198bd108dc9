"""Base of the stores: a lab and its keys."""

from __future__ import annotations

from state.client import Lab


class Store:
    """Reads and writes of one subject in a lab."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._keys = lab.keys

    async def now(self) -> float:
        """Redis' clock, in seconds since 1970."""
        return await self._lab.now()
