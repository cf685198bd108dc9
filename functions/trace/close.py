"""trace::close ends a trace by hand."""

from __future__ import annotations

from pydantic import Field

from functions.contract import Call, Command, Line, Response, function
from functions.rules.access import check_trace
from functions.rules.branches.refusals import single_mode
from state.ids import OWN_LINE, TraceId
from state.ids import Tag as TagName
from state.policy import Policy
from state.records import Trace
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
async def close(request: Close, call: Call, traces: Traces) -> Closed:
    """End a trace and free its slot; its open experiments may still finish. An agent ends its own traces."""

    def check(trace: Trace, policy: Policy, growing: int) -> None:
        check_trace(call.caller, trace)
        if trace.number == OWN_LINE and policy.traces.mode == "single":
            raise single_mode(request.tag)

    trace = await traces.close(request.tag, request.trace_id, request.reason, check)
    return Closed(trace_id=trace.trace_id, status=trace.status, reason=trace.reason)
