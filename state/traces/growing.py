"""Traces, closed and reopened, and how much each is wanted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from state.records import Trace
from state.traces.reading import TraceReader

Reopening = Literal["ok", "stale", "growing", "rootless", "no_room"]


class Growing(TraceReader):
    """Part of `Traces`."""

    async def prioritise(self, priorities: Mapping[str, float]) -> None:
        """Set how much traces are wanted, higher first."""
        if not priorities:
            return
        keys = [self._keys.trace(trace_id) for trace_id in priorities]
        await self._lab.move(
            "prioritise_trace", keys={"traces": keys}, args={"priorities": list(priorities.values())}
        )

    async def close(self, trace: Trace, reason: str) -> bool:
        """Select it no more; False where it has ended already."""
        answer = await self._lab.move(
            "end_trace",
            keys={"trace": self._keys.trace(trace.trace_id)},
            args={"tag": trace.tag, "reason": reason},
        )
        return bool(answer == "ok")

    async def reopen(self, trace: Trace, most_traces: int, policy_version: int) -> Reopening:
        """Let a trace that has ended grow again.

        "growing": it has not ended; "rootless": it has no node; "no_room": the tag has as many traces as it may have;
        "stale": the policy has changed.
        """
        answer: Reopening = await self._lab.move(
            "reopen_trace",
            keys={"trace": self._keys.trace(trace.trace_id)},
            args={
                "tag": trace.tag,
                "id": trace.trace_id,
                "number": trace.number,
                "most_traces": most_traces,
                "policy_version": policy_version,
            },
        )
        return answer
