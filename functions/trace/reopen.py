"""trace::reopen lets a trace that has ended grow again."""

from __future__ import annotations

from functions.contract import Command, Response, function
from state.ids import Id
from state.ids import Tag as TagName
from state.policies import Policies
from state.traces import Traces


class Reopen(Command):
    tag: TagName
    trace_id: Id


class Reopened(Response):
    trace_id: str
    status: str
    tip: str | None
    base: str | None


@function("trace::reopen", role="agent", writes=True)
async def reopen(request: Reopen, policies: Policies, traces: Traces) -> Reopened:
    """Let a closed, dead or merged trace grow again from its tip, if the tag has room for one more."""
    trace = await traces.get(request.tag, request.trace_id)
    policy, _ = await policies.get(request.tag)
    opened = await traces.reopen(trace, policy.traces.target_traces)
    return Reopened(trace_id=opened.trace_id, status=opened.status, tip=opened.tip, base=opened.base)
