"""trace::renew prolongs the lease of a selection."""

from __future__ import annotations

from functions.contract import Call, Command, Response, function
from functions.rules.access import check_own
from state.ids import SelectionId
from state.records import stamp
from state.refusals import over
from state.traces import Traces


class Renew(Command):
    selection_id: SelectionId


class Renewed(Response):
    selection_id: str
    status: str
    lease_expires_at: str
    held_by: str | None = None
    """The experiment made from it: while that is open, no renewal is needed."""


@function("trace::renew", role="agent", writes=True, keeps_answer=False)
async def renew(request: Renew, call: Call, traces: Traces) -> Renewed:
    """Prolong a selection's lease by its whole length, while the agent works on its idea."""
    found = await traces.selection(request.selection_id)
    check_own(call.caller, found.owner, found.selection_id)
    renewed = await traces.renew(found)
    if renewed is None:
        raise over(await traces.selection(request.selection_id))
    return Renewed(
        selection_id=renewed.selection_id,
        status=renewed.status,
        lease_expires_at=stamp(renewed.lease_expires_at),
        held_by=renewed.experiment_id,
    )
