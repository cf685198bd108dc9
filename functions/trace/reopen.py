"""trace::reopen lets a trace that has ended grow again."""

from __future__ import annotations

from functions.contract import Call, Command, Response, function
from functions.rules.access import check_trace
from functions.rules.branches.refusals import never_grown, no_room, single_mode
from state.ids import Tag as TagName
from state.ids import TraceId
from state.policy import Policy
from state.records import Trace
from state.traces import Traces


class Reopen(Command):
    tag: TagName
    trace_id: TraceId


class Reopened(Response):
    trace_id: str
    status: str
    tip: str | None
    base: str | None


@function("trace::reopen", role="agent", writes=True)
async def reopen(request: Reopen, call: Call, traces: Traces) -> Reopened:
    """Let a closed, dead or merged trace grow again from its tip, if the tag has room for one more."""

    def check(trace: Trace, policy: Policy, growing: int) -> None:
        check_trace(call.caller, trace)
        if policy.traces.mode == "single":
            raise single_mode(request.tag)
        if trace.grows:
            return
        if trace.tip is None:
            raise never_grown(trace.trace_id)
        if growing >= policy.traces.target_traces:
            raise no_room(request.tag, policy.traces.target_traces)

    trace = await traces.reopen(request.tag, request.trace_id, check)
    return Reopened(trace_id=trace.trace_id, status=trace.status, tip=trace.tip, base=trace.base)
