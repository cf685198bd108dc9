"""event::discard throws dead letters away."""

from __future__ import annotations

from pydantic import Field, model_validator

from functions.contract import Command, Response, function
from state.errors import NotFound
from state.ids import StreamId
from state.stream import Stream


class Discard(Command):
    id: StreamId | None = None
    all: bool = False
    binding: str | None = Field(None, max_length=100, description="with all: only those of this function")
    dry_run: bool = False

    @model_validator(mode="after")
    def _one_or_all(self) -> Discard:
        if (self.id is None) != self.all:
            raise ValueError("name one id, or say all")
        return self


class Discarded(Response):
    discarded: list[str]
    dry_run: bool


@function("event::discard", role="operator", writes=True)
async def discard(request: Discard, stream: Stream) -> Discarded:
    """Throw one dead letter away for good, or all of them; a dry run only says which."""
    letters = await stream.dead_letters(request.id, request.binding)
    if request.id is not None and not letters:
        raise NotFound(f"there is no dead letter {request.id}", hint="POST /api/event/dead lists them")
    gone = [e.id for e in letters if request.dry_run or await stream.discard(e) == "ok"]
    return Discarded(discarded=gone, dry_run=request.dry_run)
