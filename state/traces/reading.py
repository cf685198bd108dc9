"""Reads traces and selections: the forest, single ones, pages, and open selections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from state import reads
from state.change import Asked, loosely
from state.facts import ContextFacts
from state.ids import OWN_LINE
from state.reads import Store
from state.records import Experiment, Forest, Selection, Status, Trace
from state.refusals import no_selection

GROWING_READ = 100_000
"""More traces than a policy may ask for."""


class TraceReader(Store):
    def forest_reads(self, tag: str) -> dict[str, Asked]:
        """Reads for `forest_of`, by name."""
        keys = self._keys
        return {
            "forest": ("HGETALL", keys("forest", tag)),
            "growing": reads.members(self._lab, keys("live_traces", tag), keys.trace(""), limit=GROWING_READ),
            "branches": ("ZCOUNT", keys("traces", tag), f"({OWN_LINE}", "+inf"),
        }

    async def forest(self, tag: str) -> Forest:
        return forest_of(tag, await self._lab.read(self.forest_reads(tag)))

    async def epoch(self, tag: str) -> int:
        """The epoch that the tag's selections are made in now."""
        return int(await self._lab.command("HGET", self._keys("forest", tag), "epoch") or 1)

    async def many(self, trace_ids: Sequence[str]) -> list[Trace]:
        """Several, in the order asked for; what is not there is left out."""
        stored = await self._lab.hashes([self._keys.trace(i) for i in trace_ids])
        return [Trace.parse(fields) for fields in stored if fields]

    async def standing_on(self, tag: str, experiment_id: str) -> list[Trace]:
        """Traces, ended ones too, that have this experiment for their base; looks at every trace of the tag."""
        ids = await self._lab.command("ZRANGE", self._keys("traces", tag), 0, -1)
        bases = await self._lab.pipeline([("HGET", self._keys.trace(i), "base") for i in ids])
        return await self.many([i for i, base in zip(ids, bases, strict=True) if base == experiment_id])

    async def page(self, tag: str, limit: int, below: int | None = None) -> tuple[list[Trace], int]:
        """The newest `limit` traces below a number, by number, and the number of all."""
        index = self._keys("traces", tag)
        top = f"({below}" if below is not None else "+inf"
        ids, total = await self._lab.pipeline(
            [("ZREVRANGEBYSCORE", index, top, "-inf", "LIMIT", 0, limit), ("ZCARD", index)]
        )
        return (await self.many(ids))[::-1], int(total)

    async def selection(self, selection_id: str) -> Selection:
        """A selection; one that is over is known for 24 h. Raises NotFound: none of that name, or no longer."""
        stored = await self._lab.hash(self._keys.selection(selection_id))
        if not stored:
            raise no_selection(selection_id)
        return Selection.parse(stored)

    async def open_selections(self, tag: str) -> dict[str, float]:
        """Open selections of a tag and when their leases end; infinity while an experiment holds one."""
        rows = await self._lab.command(
            "ZRANGE", self._keys("open_selections", tag), 0, -1, "WITHSCORES", withscores=True
        )
        return {str(member): float(score) for member, score in rows}

    async def selections(self, selection_ids: Sequence[str]) -> list[Selection]:
        """Several; what is forgotten is left out."""
        stored = await self._lab.hashes([self._keys.selection(i) for i in selection_ids])
        return [Selection.parse(fields) for fields in stored if fields]

    async def context_facts(
        self,
        tag: str,
        parents: str | list[str],
        *,
        most_ancestors: int,
        most_beside: int,
        newest: Mapping[Status, int],
    ) -> ContextFacts:
        """Ancestors and siblings of these parents. A text is the id of a selection, and stands for its parents.

        Of the whole tag, the `newest` of each status are read.

        Raises:
            NotFound: the tag does not exist, or the selection.
        """
        keys, lab = self._keys, self._lab
        chosen = parents if isinstance(parents, str) else None
        of_tag, best, selection, opened = await lab.read(
            reads.tag(keys, tag),
            reads.best(keys, tag),
            loosely("HGETALL", keys.selection(chosen or "none"), to=Selection.found),
            reads.members(
                lab, keys("traces", tag), keys.trace(""), limit=most_beside, newest=True, fields=("root",)
            ),
        )
        if chosen and selection is None:
            raise no_selection(chosen)
        parent_ids = selection.parent_ids if selection else list(parents)
        roots = [root for [root] in opened.values() if root]
        until = "+inf" if selection is None else selection.finished_until
        of_status: dict[str, Asked] = {
            status: reads.records(
                lab, Experiment, keys.status(tag, status, "")[0], limit=most, newest=True, brief=True
            )
            for status, most in newest.items()
        }
        found = await lab.read(
            {
                "above": reads.above(lab, parent_ids, most_ancestors),
                "best": reads.experiment(keys, best.experiment_id) if best else None,
                "finished": reads.records(
                    lab,
                    Experiment,
                    keys("finished", tag),
                    limit=most_beside,
                    high=until,
                    newest=True,
                    brief=True,
                ),
                "roots": reads.above(lab, roots, 1),
                **of_status,
            }
        )
        known, is_whole = found["above"]
        beside = found["roots"][0] | {e.experiment_id: e for e in found["finished"]}
        return ContextFacts(
            tag=of_tag,
            selection=selection,
            parent_ids=parent_ids,
            ancestors=reads.ancestry(known),
            is_whole=is_whole,
            beside=[*beside.values()],
            newest={status: found[status][::-1] for status in newest},
            best=found["best"],
        )


def forest_of(tag: str, told: Mapping[str, Any]) -> Forest:
    """The forest, from the answers to `forest_reads`."""
    counters, growing = told["forest"], told["growing"]
    return Forest(
        tag=tag,
        select_seq=int(counters.get("select_seq", 0)),
        epoch=int(counters.get("epoch", 1)),
        virtual_time=int(counters.get("virtual_time", 0)),
        last_trace=int(counters.get("last_trace", OWN_LINE)),
        branches=int(told["branches"]),
        places=len(growing),
        growing=tuple(Trace.parse(fields) for fields in growing.values() if fields),
    )
