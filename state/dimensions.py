"""The dimensions of each tag, one versioned list; its proposed ones with their trials; the stalls of its search."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import TypeAdapter

from state import reads
from state.change import Change, Read, clock, hmget
from state.errors import NotFound
from state.keys import Keys
from state.reads import Store
from state.records import Dimension, ProposedDimension
from state.swarm_facts import RESULTS, EndedResult, Following, KeptRun, TrialFacts, TriedRun

_LIST = TypeAdapter(list[Dimension])
Replacing = Literal["dimension.frozen", "dimension.unfrozen", "dimension.measured"]
"""Events for which a tag's dimensions are replaced."""


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
                "exists": reads.number("EXISTS", keys.tag(tag)),
                "dimensions": dimensions_of(keys, tag),
                "now": clock(),
            }
        )
        dimensions, version = found["dimensions"]
        return DimensionFacts(bool(found["exists"]), dimensions, version, found["now"])

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

    def replace(
        self,
        change: Change,
        tag: str,
        after: Sequence[Dimension],
        event: Replacing,
        subject: str,
        data: Mapping[str, Any],
    ) -> None:
        """Replace a tag's dimensions, and tell of it."""
        replace_dimensions(change, tag, after)
        change.emit(event, tag, subject, data)


def replace_dimensions(change: Change, tag: str, after: Sequence[Dimension]) -> None:
    """Replace a tag's dimensions, which the change has read."""
    key = change.lab.keys("dimensions", tag)
    values = json.dumps([d.model_dump(exclude_none=True) for d in after], allow_nan=False)
    change.hset(key, {"values": values})
    change.hincrby(key, "version")


def dimensions_of(keys: Keys, tag: str) -> Read[tuple[list[Dimension], int]]:
    """A tag's dimensions, and their version: 0 while none was defined. Both are guarded."""
    return hmget(keys("dimensions", tag), "values", "version").to(
        lambda it: (dimensions_in(it["values"]), int(it["version"] or 0))
    )


def dimensions_in(text: str | None) -> list[Dimension]:
    """The dimensions in the stored list of a tag; None: no list."""
    return _LIST.validate_json(text) if text else []


ENDS = 100
"""Newest finished runs, crashes too, that are read to detect a stall; and newest stopped runs."""
KEEPS = 64
"""Best keeps that are read: of the newest 50 results all, and earlier ones."""
MOST_TRIED = 1000
"""Runs of each status that are read, handed out since the oldest trial began."""


class ProposedDimensions(Store):
    async def facts(self, tag: str, change: Change | None = None) -> TrialFacts:
        """Proposals and the state of the search, held by a `change`. Raises NotFound: no such tag."""
        keys = self._keys
        found = await (change or self._lab).read(
            {
                "now": clock(),
                "tag": reads.tag(keys, tag),
                "policy": reads.policy(keys, tag),
                "dimensions": dimensions_of(keys, tag).to(lambda found: found[0]),
                "best": reads.best(keys, tag),
                "stalls": hmget(keys("stalls", tag), "version", "cycle", "cycle_at", "asked"),
                "proposals": reads.models(ProposedDimension, keys("proposed_dimensions", tag)),
                "finished": self._newest(keys("finished", tag)),
                "stopped": self._newest(keys.status(tag, "stopped", "")[0]),
                "keeps": reads.rows(self._lab, KeptRun, keys.keeps(tag), limit=KEEPS),
            }
        )
        stalls = found.pop("stalls")
        found["proposals"].sort(key=lambda p: (p.proposed_at, p.proposal_id))
        return TrialFacts(
            ended=[*found.pop("finished"), *found.pop("stopped")],
            **found,
            cycle=int(stalls["cycle"] or 0),
            cycle_at=int(stalls["cycle_at"] or 0),
            asked=None if stalls["asked"] is None else int(stalls["asked"]),
        )

    async def find(self, tag: str) -> TrialFacts | None:
        """The same; None for an unknown tag."""
        try:
            return await self.facts(tag)
        except NotFound:
            return None

    async def ran(self, facts: TrialFacts) -> list[TriedRun]:
        """Results of runs handed out since the oldest trial began; none without a trial."""
        tried = [p for p in facts.proposals if p.state == "on_trial"]
        if not tried:
            return []
        keys, tag = self._keys, facts.tag.name
        oldest = min(p.adopted_number or 0 for p in tried)
        indexes = [keys.status(tag, status, "")[0] for status in RESULTS]
        found = await self._lab.read(
            *(
                reads.rows(self._lab, TriedRun, index, low=oldest + 1, limit=MOST_TRIED, newest=True)
                for index in indexes
            )
        )
        return [run for of_status in found for run in of_status]

    def propose(
        self,
        change: Change,
        tag: str,
        proposal: ProposedDimension,
        cycle: int,
        cycle_at: int,
        leaves: ProposedDimension | None = None,
    ) -> None:
        """Enter a proposal, or another count of one; one `leaves` the list for it."""
        if leaves is not None:
            change.hdel(self._keys("proposed_dimensions", tag), leaves.proposal_id)
        self._keep(change, tag, [proposal], cycle, cycle_at)
        said = proposal.model_dump(include={"proposal_id", "name", "times"})
        said |= {"signal_count": len(proposal.cycles), "by": proposal.proposed_by}
        change.emit("dimension.proposed", tag, proposal.name, said)

    def follow(self, change: Change, tag: str, after: Following) -> None:
        """Let trials begin and end."""
        self._keep(change, tag, after.proposals, after.cycle, after.cycle_at)
        for event in ("dimension.adopted", "dimension.promoted", "dimension.reverted"):
            for name, data in after.told.get(event, {}).items():
                change.emit(event, tag, name, data)
        if after.dimensions is not None:
            replace_dimensions(change, tag, after.dimensions)
            change.emit("dimension.defined", tag, tag, after.defined)
        if after.wanted is not None:
            change.hset(self._keys("stalls", tag), {"asked": after.wanted["cycle"]})
            change.emit("dimension.wanted", tag, tag, after.wanted)

    def clear(self, change: Change, tag: str, dropped: Sequence[str]) -> None:
        change.hincrby(self._keys("stalls", tag), "version")
        change.hdel(self._keys("proposed_dimensions", tag), *dropped)

    def _keep(
        self, change: Change, tag: str, proposals: Sequence[ProposedDimension], cycle: int, cycle_at: int
    ) -> None:
        """Store changed proposals and the stall cycle."""
        stalls = self._keys("stalls", tag)
        change.hincrby(stalls, "version")
        change.hset(stalls, {"cycle": cycle, "cycle_at": cycle_at})
        texts = {p.proposal_id: p.model_dump_json(exclude_none=True) for p in proposals}
        change.hset(self._keys("proposed_dimensions", tag), texts)

    def _newest(self, index: str) -> Read[list[EndedResult]]:
        return reads.rows(self._lab, EndedResult, index, limit=ENDS, newest=True)
