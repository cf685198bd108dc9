"""trace::sweep gives back what agents have selected and never used."""

from __future__ import annotations

from functions.contract import Command, Every, Response, function
from state.traces import Traces


class SweepSelections(Command):
    """Nothing to say."""


class SweptSelections(Response):
    expired: list[str]
    """Selections."""


@function("trace::sweep", Every("sweep_s"), role="operator", writes=True)
async def sweep(request: SweepSelections, traces: Traces) -> SweptSelections:
    """Expire selections whose agents registered nothing in time; every select does the same for its own tag."""
    return SweptSelections(expired=await traces.sweep())
