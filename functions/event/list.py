"""event::list browses the lab's events."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator
from typing import Any, Literal

from pydantic import Field

from functions.contract import Request, Response, function
from state.events import Event, EventType
from state.ids import Moment, StreamId
from state.ids import Tag as TagName
from state.stream import Stream, follows

PAGE = 500
MOST_READ = 5000
"""Events that one request looks at: a rare type is found by following the cursor."""


class ListEvents(Request):
    tag: TagName | None = Field(None, description="only events of this tag")
    types: builtins.list[EventType] | None = Field(
        None,
        min_length=1,
        max_length=100,
        description="default: every type",
        examples=[["experiment.finished"]],
    )
    since: Moment | None = Field(
        None, description="only events after this one, or after these milliseconds since 1970"
    )
    order: Literal["newest", "oldest"] = Field("newest", description="which comes first")
    limit: int = Field(50, ge=1, le=500, description="most events that are answered")
    cursor: StreamId | None = Field(None, description="next_cursor of the page before")

    def wants(self, event: Event) -> bool:
        """Whether the request asks for this event."""
        return self.tag in (None, event.tag) and (self.types is None or event.type in self.types)


class ListedEvents(Response):
    events: builtins.list[dict[str, Any]]
    next_cursor: str | None
    """Start of the next page, even if this one found nothing; None at the end."""


@function("event::list", role="viewer")
async def list(request: ListEvents, stream: Stream) -> ListedEvents:
    """The lab's events by tag, type and time, newest or oldest first; `next_cursor` leads on, even from no events."""
    found: builtins.list[dict[str, Any]] = []
    last, looked = None, 0
    async for event in _events(request, stream):
        if len(found) == request.limit or looked == MOST_READ:
            return ListedEvents(events=found, next_cursor=last)
        last, looked = event.id, looked + 1
        if request.wants(event):
            found.append(event.envelope())
    return ListedEvents(events=found, next_cursor=None)


async def _events(request: ListEvents, stream: Stream) -> AsyncIterator[Event]:
    """Every event from the cursor on, page by page."""
    cursor, since = request.cursor, request.since or "0"
    if request.order == "oldest":
        cursor = cursor if cursor and follows(cursor, since) else since
    while True:
        page = await (
            stream.before(cursor, PAGE) if request.order == "newest" else stream.after(cursor or "0", PAGE)
        )
        for event in page:
            if not follows(event.id, since):
                return
            yield event
        if len(page) < PAGE:
            return
        cursor = page[-1].id
