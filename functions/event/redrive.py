"""event::redrive delivers dead letters again."""

from __future__ import annotations

from functions.contract import Response, function
from functions.event._letters import ChooseLetters, chosen
from state.errors import Conflict
from state.stream import Stream


class Redrive(ChooseLetters):
    """One letter, or all."""


class Redriven(Response):
    redriven: list[str]
    dry_run: bool


@function("event::redrive", role="operator", writes=True)
async def redrive(request: Redrive, stream: Stream) -> Redriven:
    """Deliver one dead letter, or all of them, again; a dry run only says which."""
    letters, bound = await chosen(request, stream), await stream.redriven_to()
    served = [letter for letter in letters if letter.binding in bound]
    if request.id is not None and not served:
        raise Conflict(
            f"no process takes events for {letters[0].binding}",
            hint="its function left the table or its webhook was removed: POST /api/event/discard;"
            " a function of the clock is fired with POST /api/cron/run",
        )
    moved = [e.id for e in served if request.dry_run or await stream.revive(e) == "ok"]
    return Redriven(redriven=moved, dry_run=request.dry_run)
