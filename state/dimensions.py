"""The dimensions of all tags: one versioned list per tag, replaced as a whole."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from state.change import Change, hmget
from state.client import time_of
from state.errors import NotFound
from state.records import Dimension
from state.store import Store

_LIST = TypeAdapter(list[Dimension])


@dataclass(frozen=True)
class DimensionFacts:
    exists: bool
    dimensions: Sequence[Dimension]
    """In the order of definition."""
    version: int
    """0 while none was defined."""
    now: float


class Dimensions(Store):
    async def facts(self, tag: str, change: Change | None = None) -> DimensionFacts:
        """A tag's dimensions, in one round trip; of a tag that does not exist, too. A `change` holds with them."""
        keys = self._keys
        found = await (change or self._lab).read(
            {
                "exists": ("EXISTS", keys.tag(tag)),
                "dimensions": hmget(keys("dimensions", tag), "values", "version"),
                "now": ("TIME",),
            }
        )
        values, version = found["dimensions"].values()
        return DimensionFacts(
            bool(found["exists"]), dimensions_in(values), int(version or 0), time_of(found["now"])
        )

    async def of(self, tag: str, change: Change | None = None) -> DimensionFacts:
        """The same for an existing tag. Raises NotFound: no such tag."""
        facts = await self.facts(tag, change)
        if not facts.exists:
            raise NotFound(f"there is no tag {tag!r}", hint="POST /api/dimension/define creates it")
        return facts

    def define(
        self,
        change: Change,
        tag: str,
        after: Sequence[Dimension],
        event: Mapping[str, Any],
        froze: Mapping[str, Mapping[str, Any]],
    ) -> None:
        """Replace a tag's dimensions; `froze` are the data of the events of those that begin frozen."""
        replace_dimensions(change, tag, after)
        change.emit("dimension.defined", tag, tag, event)
        for name, data in froze.items():
            change.emit("dimension.frozen", tag, name, data)

    def freeze(
        self, change: Change, tag: str, after: Sequence[Dimension], name: str, event: Mapping[str, Any]
    ) -> None:
        """Replace the dimensions by those with one frozen."""
        replace_dimensions(change, tag, after)
        change.emit("dimension.frozen", tag, name, event)

    def unfreeze(
        self, change: Change, tag: str, after: Sequence[Dimension], name: str, event: Mapping[str, Any]
    ) -> None:
        """Replace the dimensions by those with one unfrozen."""
        replace_dimensions(change, tag, after)
        change.emit("dimension.unfrozen", tag, name, event)

    def measure(self, change: Change, tag: str, after: Sequence[Dimension], event: Mapping[str, Any]) -> None:
        """Replace the dimensions by the same with how much they matter."""
        replace_dimensions(change, tag, after)
        change.emit("dimension.measured", tag, tag, event)


def replace_dimensions(change: Change, tag: str, after: Sequence[Dimension]) -> None:
    """Replace a tag's dimensions, which the change has read."""
    key = change.lab.keys("dimensions", tag)
    values = json.dumps([d.model_dump(exclude_none=True) for d in after], allow_nan=False)
    change.hset(key, {"values": values})
    change.hincrby(key, "version")


def dimensions_in(text: str | None) -> list[Dimension]:
    """The dimensions in the stored list of a tag; None: no list."""
    return _LIST.validate_json(text) if text else []
