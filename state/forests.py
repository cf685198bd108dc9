"""Traces, read and grown: a tag's forest, what stands above and beside parents, and how a trace opens and ends."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import inf
from typing import Any

from state import reads
from state.change import NOW, Asked, Change, Word, hgetall, hmget, loosely, size, zscore
from state.facts import ContextFacts
from state.ids import OWN_LINE, trace_id_of
from state.policy import Policy, TracePolicy, read_policy
from state.reads import Store
from state.records import Experiment, Forest, Selection, Status, Trace, TraceStatus
from state.refusals import no_selection, unknown_trace

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


REMEMBERED_S = 86400
"""Seconds for which a selection that is over is remembered, as an answer to its request id is."""
Check = Callable[[Trace, Policy, int], None]
"""Refuses a change of a trace, by it, its tag's policy, and the number of live and pending traces."""


class Growing(TraceReader):
    async def prioritise(self, tag: str, priorities: Mapping[str, float]) -> None:
        """Set how much traces are wanted, higher first."""

        async def decide(change: Change) -> None:
            await check_traces(change, tag, priorities)
            for trace_id, priority in priorities.items():
                change.hset(self._keys.trace(trace_id), {"priority": priority})

        await self._lab.change(decide)

    async def close(self, tag: str, trace_id: str, reason: str, check: Check) -> Trace:
        """Select it no more; answers the trace then. One that has ended stays as it was."""

        async def decide(change: Change) -> Trace:
            trace = await self._checked(change, tag, trace_id, check)
            if not trace.grows:
                return trace
            end_trace(change, tag, trace_id, "closed", reason)
            return trace.model_copy(update={"status": "closed", "reason": reason})

        return await self._lab.change(decide)

    async def reopen(self, tag: str, trace_id: str, check: Check) -> Trace:
        """Let a trace that has ended grow again; answers the trace then."""
        key, live = self._keys.trace(trace_id), self._keys("live_traces", tag)

        async def decide(change: Change) -> Trace:
            trace = await self._checked(change, tag, trace_id, check)
            if trace.grows:
                return trace
            change.hset(key, {"status": "live", "crashes_in_a_row": 0, "since_best": 0})
            change.hdel(key, "ended_at", "reason", "merged_into")
            change.hincrby(key, "version")
            change.zadd(live, {trace_id: trace.number})
            change.emit("trace.reopened", tag, trace_id, {"trace_id": trace_id})
            return trace.model_copy(update={"status": "live"})

        return await self._lab.change(decide)

    async def _checked(self, change: Change, tag: str, trace_id: str, check: Check) -> Trace:
        """A trace of this tag. Raises NotFound: it has none of that name. What `check` raises."""
        keys = self._keys
        stored, policy, growing = await change.read(
            hgetall(keys.trace(trace_id)), hgetall(keys("policy", tag)), size(keys("live_traces", tag))
        )
        if stored.get("tag") != tag:
            raise unknown_trace(tag, trace_id)
        trace = Trace.parse(stored)
        check(trace, read_policy(policy["values"]), growing)
        return trace


async def check_traces(change: Change, tag: str, trace_ids: Collection[str]) -> None:
    """Refuse what is no trace of the tag. Raises NotFound: one is not."""
    found = await change.read(*(hmget(change.lab.keys.trace(i), "tag") for i in trace_ids))
    for trace_id, trace in zip(trace_ids, found, strict=True):
        if trace["tag"] != tag:
            raise unknown_trace(tag, trace_id)


def end_trace(change: Change, tag: str, trace_id: str, status: TraceStatus, reason: str) -> None:
    """A trace grows no more."""
    keys = change.lab.keys
    change.hset(keys.trace(trace_id), {"status": status, "reason": reason, "ended_at": NOW})
    change.hincrby(keys.trace(trace_id), "version")
    change.zrem(keys("live_traces", tag), trace_id)
    change.emit("trace.ended", tag, trace_id, {"trace_id": trace_id, "status": status, "reason": reason})


async def begin_epoch(change: Change, tag: str, before: str, after: TracePolicy) -> None:
    """Begin an epoch of a tag's traces: selections that nothing was registered with expire.

    The tag's own line grows in single mode; in multi mode it is one trace of several, where there is room.
    """
    keys, own_line = change.lab.keys, trace_id_of(tag, OWN_LINE)
    forest, opened, live = keys("forest", tag), keys("open_selections", tag), keys("live_traces", tag)
    found = await change.read(
        {
            "forest": hmget(forest, "epoch", "select_seq", "single_since", "newest", "newest_nth"),
            "unused": ("ZRANGEBYSCORE", opened, "-inf", "(+inf"),
            "tag": hmget(keys.tag(tag), "finishes"),
            "line": hmget(keys.trace(own_line), "trace_id", "status", "root"),
            "first": ("ZRANGE", keys("finished", tag), 0, 0),
            "best": hmget(keys.best(tag), "experiment_id", "commit_sha"),
            "growing": size(live),
        }
    )
    counters, status = found["forest"], found["line"]["status"]
    firsts = (zscore(keys("finished", tag), first) for first in found["first"])
    ends = await change.read(*(zscore(opened, selection) for selection in found["unused"]), *firsts)
    unused = [i for i, end in zip(found["unused"], ends, strict=False) if end not in (None, inf)]
    change.hset(forest, {"epoch": int(counters["epoch"] or 1) + 1})
    change.zadd(opened, dict.fromkeys(unused, NOW))
    if (before, after.mode) == ("multi", "single"):
        change.hset(forest, {"single_since": found["tag"]["finishes"] or 0})
        change.zrem(live, own_line)
    if (before, after.mode) != ("single", "multi"):
        return
    if int(counters["newest_nth"] or 0) > int(counters["single_since"] or 0):
        status = _follow_tag(change, tag, found)
    if status == "live" and found["growing"] < after.target_traces:
        change.zadd(live, {own_line: OWN_LINE})
    elif status == "live":
        end_trace(change, tag, own_line, "closed", "the tag has as many traces as it may have")


def _follow_tag(change: Change, tag: str, found: Mapping[str, Any]) -> TraceStatus:
    """Bring the tag's own line up to date, as `lua/select_trace.lua` does; answers its status."""
    keys, own_line, newest = change.lab.keys, trace_id_of(tag, OWN_LINE), found["forest"]["newest"]
    status: TraceStatus = "live" if newest else "pending"
    fields: dict[str, Word] = {
        "status": status,
        "base": found["best"]["experiment_id"] or "",
        "base_commit_sha": found["best"]["commit_sha"] or "",
    }
    if newest:
        fields |= {"tip": newest, "root": found["line"]["root"] or [*found["first"], newest][0]}
    if found["line"]["trace_id"] is None:
        fields |= {
            "trace_id": own_line,
            "tag": tag,
            "number": OWN_LINE,
            "created_at": NOW,
            "kind": "new_root",
        }
        change.zadd(keys("traces", tag), {own_line: OWN_LINE})
    change.hset(keys.trace(own_line), fields)
    change.hdel(keys.trace(own_line), "ended_at", "reason", "merged_into")
    return status
