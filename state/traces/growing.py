"""Traces, closed and reopened, and how much each is wanted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from math import inf
from typing import Any

from state.change import NOW, Change, Word, hgetall, hmget, size, zscore
from state.ids import OWN_LINE, trace_id_of
from state.policy import Policy, TracePolicy, read_policy
from state.records import Trace, TraceStatus
from state.refusals import unknown_trace
from state.traces.reading import TraceReader

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
