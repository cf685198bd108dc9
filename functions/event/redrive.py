"""event::redrive puts dead letters before their handlers once more."""

from __future__ import annotations

from pydantic import Field, model_validator

from functions.contract import Command, Response, function
from state.errors import Conflict, NotFound
from state.ids import StreamId
from state.stream import Stream


class Redrive(Command):
    id: StreamId | None = None
    all: bool = False
    binding: str | None = Field(None, max_length=100, description="with all: only those of this function")
    dry_run: bool = False

    @model_validator(mode="after")
    def _one_or_all(self) -> Redrive:
        if (self.id is None) != self.all:
            raise ValueError("name one id, or say all")
        return self


class Redriven(Response):
    redriven: list[str]
    dry_run: bool


@function("event::redrive", role="operator", writes=True)
async def redrive(request: Redrive, stream: Stream) -> Redriven:
    """Deliver one dead letter, or all of them, again; a dry run only says which."""
    letters = await stream.dead_letters(request.id, request.binding)
    if request.id is not None and not letters:
        raise NotFound(f"there is no dead letter {request.id}", hint="POST /api/event/dead lists them")
    served = [letter for letter in letters if await stream.is_bound(letter.binding)]
    if request.id is not None and not served:
        raise Conflict(
            f"nobody takes events for {letters[0].binding}",
            hint="its function left the table or its webhook was removed: POST /api/event/discard;"
            " a function of the clock is fired with POST /api/cron/run",
        )
    moved = [e.id for e in served if request.dry_run or await stream.revive(e) == "ok"]
    return Redriven(redriven=moved, dry_run=request.dry_run)
