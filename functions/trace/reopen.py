"""trace::reopen lets a trace that has ended grow again."""

from __future__ import annotations

from functions.contract import Call, Command, Response, function
from functions.rules.access import check_trace
from functions.rules.branches.refusals import never_grown, no_room, single_mode
from state.ids import Tag as TagName
from state.ids import TraceId
from state.policies import Policies
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
async def reopen(request: Reopen, call: Call, policies: Policies, traces: Traces) -> Reopened:
    """Let a closed, dead or merged trace grow again from its tip, if the tag has room for one more."""
    while True:
        trace = await traces.get(request.tag, request.trace_id)
        check_trace(call.caller, trace)
        policy, version = await policies.get(request.tag)
        if policy.traces.mode == "single":
            raise single_mode(request.tag)
        match await traces.reopen(trace, policy.traces.target_traces, version):
            case "rootless":
                raise never_grown(trace.trace_id)
            case "no_room":
                raise no_room(request.tag, policy.traces.target_traces)
            case "growing":
                return Reopened(trace_id=trace.trace_id, status=trace.status, tip=trace.tip, base=trace.base)
            case "ok":
                return Reopened(trace_id=trace.trace_id, status="live", tip=trace.tip, base=trace.base)
            case "stale":
                continue
