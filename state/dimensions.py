"""The dimensions of all tags: one versioned list per tag, replaced as a whole."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from state.client import time_of
from state.errors import NotFound
from state.policy import Policy
from state.records import Dimension, Strategy, Tag
from state.store import Store
from state.tags import beginning

_LIST = TypeAdapter(list[Dimension])


@dataclass(frozen=True)
class DimensionFacts:
    """The dimensions of a tag."""

    exists: bool
    """The tag does."""
    dimensions: Sequence[Dimension]
    """In the order of definition."""
    version: int
    """0 while none was defined."""
    now: float


@dataclass(frozen=True)
class NewTag:
    """The dimensions of a new tag."""

    tag: Tag
    strategy: Strategy
    policy: Policy


class Dimensions(Store):
    """The dimensions of all tags."""

    async def facts(self, tag: str) -> DimensionFacts:
        """A tag's dimensions, in one round trip; of a tag that does not exist, too."""
        keys = self._lab.keys
        exists, (values, version), time = await self._lab.pipeline(
            [
                ("EXISTS", keys.tag(tag)),
                ("HMGET", keys("dimensions", tag), "values", "version"),
                ("TIME",),
            ]
        )
        return DimensionFacts(bool(exists), dimensions_in(values), int(version or 0), time_of(time))

    async def of(self, tag: str) -> DimensionFacts:
        """The same for an existing tag.

        Raises:
            NotFound: no such tag.
        """
        facts = await self.facts(tag)
        if not facts.exists:
            raise NotFound(f"there is no tag {tag!r}", hint="POST /api/dimension/define creates it")
        return facts

    async def define(
        self,
        facts: DimensionFacts,
        after: Sequence[Dimension],
        new: NewTag,
        *,
        event: Mapping[str, Any],
        froze: Mapping[str, Mapping[str, Any]],
    ) -> int | None:
        """Replace a tag's dimensions; where the tag is missing it begins as `new`. None where the facts are stale.

        `event` is the data of the event; `froze` those of the events of the dimensions that begin frozen.
        """
        answer = await self._lab.move(
            "define_dimensions",
            args={
                **({} if facts.exists else beginning(new.tag, new.strategy, new.policy)),
                "tag": new.tag.name,
                "exists": "yes" if facts.exists else None,
                "version": facts.version,
                "values": _text(after),
                "defined": json.dumps(event),
                "frozen": list(froze),
                "froze": [json.dumps(data) for data in froze.values()],
            },
        )
        return None if answer == "stale" else int(answer)

    async def freeze(
        self, tag: str, facts: DimensionFacts, after: Sequence[Dimension], event: Mapping[str, Any]
    ) -> int | None:
        """Replace the dimensions by those with one frozen; None where the facts are stale.

        `event` is its data; it has the dimension's name.
        """
        return await self._one_changed("freeze_dimension", tag, facts, after, event)

    async def unfreeze(
        self, tag: str, facts: DimensionFacts, after: Sequence[Dimension], event: Mapping[str, Any]
    ) -> int | None:
        """The dimensions with one unfrozen."""
        return await self._one_changed("unfreeze_dimension", tag, facts, after, event)

    async def measure(
        self, tag: str, version: int, after: Sequence[Dimension], event: Mapping[str, Any]
    ) -> int | None:
        """Replace the dimensions of this version by the same with how much they matter; None where it is stale."""
        answer = await self._lab.move(
            "measure_dimensions",
            args={"tag": tag, "version": version, "values": _text(after), "data": json.dumps(event)},
        )
        return None if answer == "stale" else int(answer)

    async def _one_changed(
        self,
        move: str,
        tag: str,
        facts: DimensionFacts,
        after: Sequence[Dimension],
        event: Mapping[str, Any],
    ) -> int | None:
        answer = await self._lab.move(
            move,
            args={
                "tag": tag,
                "version": facts.version,
                "values": _text(after),
                "name": event["name"],
                "data": json.dumps(event),
            },
        )
        return None if answer == "stale" else int(answer)


def _text(dimensions: Sequence[Dimension]) -> str:
    return json.dumps([d.model_dump(exclude_none=True) for d in dimensions], allow_nan=False)


def dimensions_in(text: str | None) -> list[Dimension]:
    """The dimensions in the stored list of a tag; None: no list."""
    return _LIST.validate_json(text) if text else []
