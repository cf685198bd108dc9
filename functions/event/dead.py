"""event::dead shows the events whose handler failed too often."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from functions.contract import Request, Response, function
from state.ids import StreamId
from state.stream import Stream


class ListDeadLetters(Request):
    limit: int = Field(50, ge=1, le=1000, description="most letters that are answered")
    cursor: StreamId | None = Field(None, description="next_cursor of the page before")


class DeadLetterView(Response):
    id: str
    binding: str
    """The function that could not handle it."""
    error: str
    deliveries: int
    time: str
    event: dict[str, Any]


class DeadLetters(Response):
    dead: list[DeadLetterView]
    total: int
    next_cursor: str | None


@function("event::dead", role="viewer")
async def dead(request: ListDeadLetters, stream: Stream) -> DeadLetters:
    """Dead letters, oldest first, each with the event, its binding and the last error."""
    found = await stream.dead(request.cursor, request.limit)
    return DeadLetters(
        dead=[DeadLetterView(**vars(letter)) for letter in found],
        total=await stream.dead_count(),
        next_cursor=found[-1].id if len(found) == request.limit else None,
    )
