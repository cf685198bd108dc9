"""What language models say of the graphs of hypotheses, in prose."""

from __future__ import annotations

import json
from dataclasses import dataclass

from state.client import Lab


@dataclass(frozen=True)
class ToldGraph:
    """A graph in prose."""

    text: str
    author: str
    digest: str
    """Of the beliefs that it tells of."""


class ToldGraphs:
    """The prose of all tags."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    async def find(self, tag: str) -> ToldGraph | None:
        """What was told of a tag last."""
        stored = await self._lab.hash(self._lab.keys("told_graph", tag))
        return ToldGraph(**stored) if stored else None

    async def tell(self, tag: str, told: ToldGraph) -> None:
        """Keep what is told now."""
        data = {"author": told.author, "digest": told.digest}
        await self._lab.move(
            "tell_graph",
            args={
                "tag": tag,
                "text": told.text,
                "author": told.author,
                "digest": told.digest,
                "told": json.dumps(data),
            },
        )
