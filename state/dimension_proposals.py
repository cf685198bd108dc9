"""Proposed dimensions: the proposals, their trials and the stalls of a search."""

from __future__ import annotations

from collections.abc import Sequence

from state.change import Change, hmget
from state.client import time_of
from state.dimensions import dimensions_in, replace_dimensions
from state.errors import NotFound
from state.indexes import members, read_as
from state.moves import Arg
from state.policy import read_policy
from state.records import Best, ProposedDimension
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
    async def facts(self, tag: str, change: Change | None = None) -> TrialFacts:
        """Proposals and the state of the search, held by a `change`. Raises NotFound: no such tag."""
        keys = self._keys
        found = await (change or self._lab).read(
            {
                "now": ("TIME",),
                "tag": ("HGETALL", keys.tag(tag)),
                "policy": ("HMGET", keys("policy", tag), "values", "version"),
                "dimensions": hmget(keys("dimensions", tag), "values", "version"),
                "best": ("HGETALL", keys.best(tag)),
                "stalls": hmget(keys("stalls", tag), "version", "cycle", "cycle_at", "asked"),
                "proposals": ("HVALS", keys("proposed_dimensions", tag)),
                "finished": self._newest(keys("finished", tag)),
                "stopped": self._newest(keys.status(tag, "stopped", "")[0]),
                "keeps": members(self._lab, keys.keeps(tag), limit=KEEPS, fields=KeptRun),
            }
        )
        of_tag = tag_in(found["tag"], tag)
        cycle, cycle_at, asked = (found["stalls"][name] for name in ("cycle", "cycle_at", "asked"))
        proposals = [ProposedDimension.model_validate_json(text) for text in found["proposals"]]
        return TrialFacts(
            now=time_of(found["now"]),
            tag=of_tag,
            policy=read_policy(found["policy"][0]),
            dimensions=dimensions_in(found["dimensions"]["values"]),
            best=Best.found(found["best"]),
            proposals=sorted(proposals, key=lambda p: (p.proposed_at, p.proposal_id)),
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
        """Results of runs handed out since the oldest trial began; none without a trial."""
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
        said = {
            "proposal_id": proposal.proposal_id,
            "name": proposal.name,
            "signal_count": len(proposal.cycles),
            "times": proposal.times,
            "by": proposal.proposed_by,
        }
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

    def _newest(self, index: str) -> Sequence[Arg]:
        return members(self._lab, index, limit=ENDS, newest=True, fields=EndedResult)
