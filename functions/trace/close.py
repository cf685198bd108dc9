"""trace::close ends a trace by hand."""

from __future__ import annotations

from pydantic import Field

from functions.contract import Call, Command, Line, Response, function
from functions.rules.access import check_trace
from functions.rules.branches.refusals import single_mode
from state.ids import OWN_LINE, TraceId
from state.ids import Tag as TagName
from state.policies import Policies
from state.traces import Traces


class Close(Command):
    tag: TagName
    trace_id: TraceId
    reason: Line = Field("closed by hand", description="why it grows no further")


class Closed(Response):
    trace_id: str
    status: str
    """The status now; a trace that had ended before keeps its status."""
    reason: str | None


@function("trace::close", role="agent", writes=True)
async def close(request: Close, call: Call, policies: Policies, traces: Traces) -> Closed:
    """End a trace and free its slot; its open experiments may still finish. An agent ends its own traces."""
    trace = await traces.get(request.tag, request.trace_id)
    check_trace(call.caller, trace)
    policy, _ = await policies.get(request.tag)
    if trace.number == OWN_LINE and policy.traces.mode == "single":
        raise single_mode(request.tag)
    if await traces.close(trace, request.reason):
        return Closed(trace_id=trace.trace_id, status="closed", reason=request.reason)
    trace = await traces.get(request.tag, request.trace_id)
    return Closed(trace_id=trace.trace_id, status=trace.status, reason=trace.reason)
