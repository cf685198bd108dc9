"""event::discard throws a dead letter away."""

from __future__ import annotations

from functions.contract import Command, Response, function
from state.errors import NotFound
from state.ids import StreamId
from state.stream import Stream


class Discard(Command):
    id: StreamId


class Discarded(Response):
    discarded: str


@function("event::discard", role="operator", writes=True)
async def discard(request: Discard, stream: Stream) -> Discarded:
    """Throw one dead letter away for good."""
    letters = await stream.dead_letters(request.id, None)
    if not letters or not await stream.revive(letters[0], deliver=False):
        raise NotFound(f"there is no dead letter {request.id}", hint="POST /api/event/dead lists them")
    return Discarded(discarded=request.id)
