"""trace::release gives a selection back unused."""

from __future__ import annotations

from pydantic import Field

from functions.contract import Call, Command, Line, Response, function
from functions.rules.access import check_own
from state.errors import Conflict
from state.ids import SelectionId
from state.refusals import over
from state.traces import Traces


class ReleaseSelection(Command):
    selection_id: SelectionId
    reason: Line = Field("its agent had no idea for it", description="why it is given back")


class ReleasedSelection(Response):
    selection_id: str
    status: str


@function("trace::release", role="agent", writes=True, keeps_answer=False)
async def release(request: ReleaseSelection, call: Call, traces: Traces) -> ReleasedSelection:
    """Give a selection back unused; its trace is free at once."""
    found = await traces.selection(request.selection_id)
    check_own(call.caller, found.owner, found.selection_id)
    after = await traces.release(found, request.reason)
    if after.status == "open":
        raise Conflict(
            f"{after.experiment_id} was registered with {after.selection_id}",
            hint=f"end {after.experiment_id} with POST /api/experiment/stop: its selection ends with it",
            fields={"code": "selection_registered", "experiment_id": after.experiment_id},
        )
    if after.status == "committed":
        raise over(after)
    return ReleasedSelection(selection_id=after.selection_id, status=after.status)
