"""trace::release gives a selection back unused."""

from __future__ import annotations

from functions.contract import Call, Command, Line, Response, function
from functions.rules.access import check_own
from state.errors import Conflict
from state.ids import Id
from state.traces import Traces, over


class Release(Command):
    selection_id: Id
    reason: Line = "its agent has no idea for it"


class Released(Response):
    selection_id: str
    status: str


@function("trace::release", role="agent", writes=True, keeps_answer=False)
async def release(request: Release, call: Call, traces: Traces) -> Released:
    """Give a selection back that no experiment will be made from: its trace is free at once."""
    found = await traces.selection(request.selection_id)
    check_own(call.caller, found.owner, found.selection_id)
    became = await traces.end(found, "released", request.reason)
    found = await traces.selection(request.selection_id)
    if became == "registered":
        raise Conflict(
            f"{found.experiment_id} was registered with {found.selection_id}",
            hint=f"end that one with POST /api/experiment/stop: its selection ends with {found.experiment_id}",
            fields={"code": "selection_registered", "experiment_id": found.experiment_id},
        )
    if found.status == "committed":
        raise over(found)
    return Released(selection_id=found.selection_id, status=found.status)
