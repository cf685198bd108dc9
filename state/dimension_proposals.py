"""Proposed dimensions: the proposals, their trials and the stalls of a search."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from state.client import time_of
from state.dimensions import dimensions_in
from state.errors import NotFound
from state.indexes import members, read_as
from state.moves import Arg
from state.policy import read_policy
from state.records import Best, Dimension, ProposedDimension
from state.store import Store
from state.tags import tag_in
from state.trial_facts import RESULTS, EndedResult, Following, KeptRun, TrialFacts, TriedRun

ENDS = 100
"""Newest finished runs, crashes too, that are read to detect a stall; and newest stopped runs."""
KEEPS = 64
"""Best keeps that are read: of the newest 50 results all, and earlier ones."""
MOST_TRIED = 1000
"""Runs of each status that are read, handed out since the oldest trial began."""


class DimensionProposals(Store):
    """The proposed dimensions of all tags."""

    async def facts(self, tag: str) -> TrialFacts:
        """A tag's proposals, and how its search goes; one round trip.

        Raises:
            NotFound: no such tag.
        """
        keys = self._keys
        found = await self._lab.read(
            {
                "now": ("TIME",),
                "tag": ("HGETALL", keys.tag(tag)),
                "policy": ("HMGET", keys("policy", tag), "values", "version"),
                "dimensions": ("HMGET", keys("dimensions", tag), "values", "version"),
                "best": ("HGETALL", keys.best(tag)),
                "proposals": ("HVALS", keys("proposed_dimensions", tag)),
                "stalls": ("HMGET", keys("stalls", tag), "version", "cycle", "cycle_at", "asked"),
                "finished": self._newest(keys("finished", tag)),
                "stopped": self._newest(keys.status(tag, "stopped", "")[0]),
                "keeps": members(self._lab, keys.keeps(tag), limit=KEEPS, fields=KeptRun),
            }
        )
        of_tag = tag_in(found["tag"], tag)
        values, version = found["dimensions"]
        changes, cycle, cycle_at, asked = found["stalls"]
        proposals = [ProposedDimension.model_validate_json(text) for text in found["proposals"]]
        return TrialFacts(
            now=time_of(found["now"]),
            tag=of_tag,
            policy=read_policy(found["policy"][0]),
            dimensions=dimensions_in(values),
            dimensions_version=int(version or 0),
            best=Best.found(found["best"]),
            proposals=sorted(proposals, key=lambda p: (p.proposed_at, p.proposal_id)),
            version=int(changes or 0),
            cycle=int(cycle or 0),
            cycle_at=int(cycle_at or 0),
            asked=None if asked is None else int(asked),
            ended=[run for name in ("finished", "stopped") for run in read_as(EndedResult, found[name])],
            keeps=read_as(KeptRun, found["keeps"]),
        )

    async def find(self, tag: str) -> TrialFacts | None:
        """The same; None for an unknown tag."""
        try:
            return await self.facts(tag)
        except NotFound:
            return None

    async def ran(self, facts: TrialFacts) -> list[TriedRun]:
        """The results of runs that were handed out since the oldest trial began.

        One round trip; none where nothing is on trial.
        """
        tried = [p for p in facts.proposals if p.state == "on_trial"]
        if not tried:
            return []
        keys, tag = self._keys, facts.tag.name
        oldest = min(p.adopted_number or 0 for p in tried)
        answers = await self._lab.pipeline(
            [
                members(
                    self._lab,
                    keys.status(tag, status, "")[0],
                    low=oldest + 1,
                    limit=MOST_TRIED,
                    newest=True,
                    fields=TriedRun,
                )
                for status in RESULTS
            ]
        )
        return [run for answer in answers for run in read_as(TriedRun, answer)]

    async def propose(
        self,
        facts: TrialFacts,
        proposal: ProposedDimension,
        cycle: int,
        cycle_at: int,
        leaves: ProposedDimension | None = None,
    ) -> bool:
        """Enter a proposal, or another count of one; one `leaves` the list for it.

        False where the proposals have changed.
        """
        said = {
            "proposal_id": proposal.proposal_id,
            "name": proposal.name,
            "signal_count": len(proposal.cycles),
            "times": proposal.times,
            "by": proposal.proposed_by,
        }
        answer = await self._lab.move(
            "propose_dimension",
            args={
                **_changed(facts, [proposal], cycle, cycle_at),
                "dropped": None if leaves is None else leaves.proposal_id,
                "name": proposal.name,
                "data": json.dumps(said),
            },
        )
        return bool(answer == "ok")

    async def follow(self, facts: TrialFacts, after: Following) -> bool:
        """Let trials begin and end; False where the proposals or the dimensions have changed."""
        answer = await self._lab.move(
            "follow_trials",
            args={
                **_changed(facts, after.proposals, after.cycle, after.cycle_at),
                "dimensions_version": facts.dimensions_version,
                "values": None if after.dimensions is None else _text(after.dimensions),
                "defined": json.dumps(after.defined, allow_nan=False),
                "asked": after.asked,
                "wanted": None if after.wanted is None else json.dumps(after.wanted),
                **_told("adopted", after),
                **_told("promoted", after),
                **_told("reverted", after),
            },
        )
        return bool(answer == "ok")

    async def clear(self, facts: TrialFacts, dropped: Sequence[str]) -> bool:
        """Drop proposals, by their ids; False where the proposals have changed."""
        answer = await self._lab.move(
            "clear_proposals",
            args={"tag": facts.tag.name, "version": facts.version, "dropped": list(dropped)},
        )
        return bool(answer == "ok")

    def _newest(self, index: str) -> Sequence[Arg]:
        return members(self._lab, index, limit=ENDS, newest=True, fields=EndedResult)


def _changed(
    facts: TrialFacts, proposals: Sequence[ProposedDimension], cycle: int, cycle_at: int
) -> dict[str, Arg | Sequence[Arg] | None]:
    """Proposals and the stall cycle as moves take them."""
    return {
        "tag": facts.tag.name,
        "version": facts.version,
        "ids": [p.proposal_id for p in proposals],
        "texts": [p.model_dump_json(exclude_none=True) for p in proposals],
        "cycle": cycle,
        "cycle_at": cycle_at,
    }


def _told(verb: str, after: Following) -> Mapping[str, Any]:
    """The events of this verb, as the move takes them."""
    said = after.told.get(f"dimension.{verb}", {})
    return {verb: [*said], f"{verb}_data": [json.dumps(data, allow_nan=False) for data in said.values()]}


def _text(dimensions: Sequence[Dimension]) -> str:
    return json.dumps([d.model_dump(exclude_none=True) for d in dimensions], allow_nan=False)
