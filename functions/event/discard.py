"""event::discard deletes dead letters."""

from __future__ import annotations

from functions.contract import Response, function
from functions.event._letters import ChooseLetters, chosen
from state.stream import Stream


class Discard(ChooseLetters):
    """One letter, or all."""


class Discarded(Response):
    discarded: list[str]
    dry_run: bool


@function("event::discard", role="operator", writes=True)
async def discard(request: Discard, stream: Stream) -> Discarded:
    """Delete one dead letter, or all of them; a dry run only says which."""
    letters = await chosen(request, stream)
    gone = [e.id for e in letters if request.dry_run or await stream.discard(e) == "ok"]
    return Discarded(discarded=gone, dry_run=request.dry_run)
