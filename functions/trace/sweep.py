"""trace::sweep expires selections that agents have not used in time."""

from __future__ import annotations

from functions.contract import Command, Every, Response, function
from state.traces import Traces


class SweepSelections(Command):
    """No fields."""


class SweptSelections(Response):
    expired: list[str]
    """Ids of selections."""


@function("trace::sweep", Every("sweep_s"), role="operator", writes=True)
async def sweep(request: SweepSelections, traces: Traces) -> SweptSelections:
    """Expire selections whose lease ended before an experiment was registered; trace::select does so for its tag."""
    return SweptSelections(expired=await traces.sweep())
