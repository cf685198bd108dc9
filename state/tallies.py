"""Counts of the lab's processes, summed over all that ever ran; for graphs, not for decisions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from state.change import NOW, Change, hmget
from state.store import Store


class Tallies(Store):
    """Sums by name; a process that ends leaves its counts behind."""

    async def add(self, counted: Mapping[str, float], times: Iterable[str] = ()) -> None:
        """Add to the sums, all at once, and set each name in `times` to this moment."""
        tallies = self._keys("tallies")

        async def decide(change: Change) -> None:
            (before,) = await change.read(hmget(tallies, *counted))
            sums = {name: float(before[name] or 0) + n for name, n in counted.items()}
            change.hset(tallies, {**sums, **dict.fromkeys(times, NOW)})

        await self._lab.change(decide)

    async def all(self) -> dict[str, float]:
        """Every sum and time by its name."""
        stored = await self._lab.hash(self._lab.keys("tallies"))
        return {name: float(amount) for name, amount in stored.items()}
