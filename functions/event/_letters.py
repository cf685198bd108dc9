"""Which dead letters an operator means: one, or all of a binding or of any."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from functions.contract import Command
from state.errors import NotFound
from state.ids import StreamId
from state.stream import DeadLetter, Stream


class ChooseLetters(Command):
    id: StreamId | None = Field(None, description="one letter; event::dead lists them")
    all: bool = Field(False, description="every letter")
    binding: str | None = Field(
        None, max_length=100, description="with all: only those of this function", examples=["search::adapt"]
    )
    dry_run: bool = Field(False, description="only say what would be done")

    @model_validator(mode="after")
    def _one_or_all(self) -> Self:
        if (self.id is None) != self.all:
            raise ValueError("name one id, or say all")
        return self


async def chosen(request: ChooseLetters, stream: Stream) -> list[DeadLetter]:
    """The letters of a request.

    Raises:
        NotFound: there is none of this id.
    """
    letters = await stream.dead_letters(request.id, request.binding)
    if request.id is not None and not letters:
        raise NotFound(f"there is no dead letter {request.id}", hint="POST /api/event/dead lists them")
    return letters
