"""Model-written summaries of hypothesis graphs."""

from __future__ import annotations

from dataclasses import dataclass

from state.change import Change
from state.store import Store


@dataclass(frozen=True)
class StoredGraphSummary:
    text: str
    author: str
    digest: str
    """Digest of the summarised beliefs."""


class GraphSummaries(Store):
    async def find(self, tag: str) -> StoredGraphSummary | None:
        stored = await self._lab.hash(self._lab.keys("told_graph", tag))
        return StoredGraphSummary(**stored) if stored else None

    async def tell(self, tag: str, told: StoredGraphSummary) -> None:
        async def decide(change: Change) -> None:
            change.hset(self._keys("told_graph", tag), vars(told))
            change.emit("graph.told", tag, tag, {"author": told.author, "digest": told.digest})

        await self._lab.change(decide)
