"""Traces, closed and reopened, and how much each is wanted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from state.change import NOW, Change, hgetall, hmget, size
from state.policy import Policy, read_policy
from state.records import Trace, TraceStatus
from state.refusals import unknown_trace
from state.traces.reading import TraceReader

GROWS: tuple[TraceStatus, ...] = ("live", "pending")

Check = Callable[[Trace, Policy, int], None]
"""Refuses a change of a trace, by it, its tag's policy, and the number of live and pending traces."""


class Growing(TraceReader):
    """Part of `Traces`."""

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
            if trace.status not in GROWS:
                return trace
            end_trace(change, tag, trace_id, "closed", reason)
            return trace.model_copy(update={"status": "closed", "reason": reason})

        return await self._lab.change(decide)

    async def reopen(self, tag: str, trace_id: str, check: Check) -> Trace:
        """Let a trace that has ended grow again; answers the trace then."""
        key, live = self._keys.trace(trace_id), self._keys("live_traces", tag)

        async def decide(change: Change) -> Trace:
            trace = await self._checked(change, tag, trace_id, check)
            if trace.status in GROWS:
                return trace
            change.hset(key, {"status": "live", "crashes_in_a_row": 0, "since_best": 0})
            change.hdel(key, "ended_at", "reason", "merged_into")
            change.hincrby(key, "version")
            change.zadd(live, {trace_id: trace.number})
            change.emit("trace.reopened", tag, trace_id, {"trace_id": trace_id})
            return trace.model_copy(update={"status": "live"})

        return await self._lab.change(decide)

    async def _checked(self, change: Change, tag: str, trace_id: str, check: Check) -> Trace:
        """A trace of this tag.

        Raises:
            NotFound: it has none of that name. What `check` raises.
        """
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
    """Refuse what is no trace of the tag.

    Raises:
        NotFound: one is not.
    """
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
