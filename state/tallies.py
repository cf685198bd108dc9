"""Counts of the lab's processes, summed over all that ever ran; for graphs, not for decisions."""

from __future__ import annotations

from collections.abc import Mapping

from state.store import Store


class Tallies(Store):
    """Sums by name; a process that ends leaves its counts behind."""

    async def add(self, counted: Mapping[str, float]) -> None:
        """Add to the sums, all at once."""
        await self._lab.move(
            "add_tallies", args={"names": list(counted), "amounts": [float(n) for n in counted.values()]}
        )

    async def all(self) -> dict[str, float]:
        """Every sum by its name."""
        stored = await self._lab.hash(self._lab.keys("tallies"))
        return {name: float(amount) for name, amount in stored.items()}
