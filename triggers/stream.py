"""GET /api/events: the lab's events as server-sent events, live and from any point on.

One task per web process reads the stream; what it reads is encoded once and handed to every subscriber.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import asdict, dataclass, field

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from functions.process import ended
from state.errors import Invalid, NightjarError, Unavailable
from state.events import CATALOGUE, Event
from state.ids import TAG_PATTERN
from state.stream import Stream, follows
from triggers.problems import problem_response

log = logging.getLogger(__name__)

HEARTBEAT_S = 15.0
BACKLOG_PAGE = 500
SLOW_AFTER = 2000
"""Undelivered events after which a subscriber is dropped: it comes back with Last-Event-ID and loses nothing."""
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


@dataclass(frozen=True)
class Filter:
    """Which events a subscriber wants; None is all."""

    tag: str | None = None
    types: frozenset[str] | None = None

    def wants(self, event: Event) -> bool:
        return (self.tag is None or event.tag == self.tag) and (
            self.types is None or event.type in self.types
        )


@dataclass(eq=False)
class Subscriber:
    """One connection: what it wants, and what it has not been sent yet."""

    wanted: Filter
    waiting: asyncio.Queue[tuple[str, bytes] | None] = field(
        default_factory=lambda: asyncio.Queue(SLOW_AFTER)
    )

    def offer(self, event_id: str, encoded: bytes) -> bool:
        """False where the subscriber is too slow to go on."""
        try:
            self.waiting.put_nowait((event_id, encoded))
        except asyncio.QueueFull:
            return False
        return True

    def close(self) -> None:
        """End the connection; whatever still waits is left to its next visit."""
        while not self.waiting.empty():
            self.waiting.get_nowait()
        self.waiting.put_nowait(None)


class Broadcast:
    """Reads the stream once for all subscribers of this process."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._subscribers: set[Subscriber] = set()
        self._closed = False

    async def run(self) -> None:
        """Read until cancelled. Whatever a Redis outage held up is read from where we were."""
        last: str | None = None
        while True:
            try:
                last = last or await self._stream.newest()
                for event in await self._stream.follow(last, wait_s=5.0):
                    last = event.id
                    self._hand_out(event)
            except Unavailable as problem:
                log.warning("the event stream: %s; reading on in a second", problem.detail)
                await asyncio.sleep(1)

    def close(self) -> None:
        """End every connection: the process stops."""
        self._closed = True
        for subscriber in list(self._subscribers):
            subscriber.close()

    def _hand_out(self, event: Event) -> None:
        encoded = encode(event)
        for subscriber in list(self._subscribers):
            if subscriber.wanted.wants(event) and not subscriber.offer(event.id, encoded):
                self._subscribers.discard(subscriber)
                subscriber.close()

    async def subscribe(self, wanted: Filter, since: str | None) -> AsyncGenerator[bytes, None]:
        """Everything after `since` (None: from now on), first what has happened, then what happens."""
        subscriber = Subscriber(wanted)
        self._subscribers.add(subscriber)
        if self._closed:
            subscriber.close()
        try:
            last = since or await self._stream.newest()
            if since is not None and (first := await self._stream.gap_after(since)):
                yield reset(since, first)
            async for event in self._backlog(last):
                last = event.id
                if wanted.wants(event):
                    yield encode(event)
            while True:
                try:
                    item = await asyncio.wait_for(subscriber.waiting.get(), HEARTBEAT_S)
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                if item is None:
                    return
                event_id, encoded = item
                if follows(event_id, last):  # the backlog may have told it already
                    last = event_id
                    yield encoded
        finally:
            self._subscribers.discard(subscriber)

    async def _backlog(self, after: str) -> AsyncIterator[Event]:
        while page := await self._stream.after(after, BACKLOG_PAGE):
            for event in page:
                yield event
            after = page[-1].id


def encode(event: Event) -> bytes:
    """One event in the wire format; `id:` is what Last-Event-ID resumes from."""
    data = json.dumps({**asdict(event), "data": dict(event.data)}, ensure_ascii=False, separators=(",", ":"))
    return f"id: {event.id}\nevent: {event.type}\ndata: {data}\n\n".encode()


def reset(since: str, first: str) -> bytes:
    """Events after `since` are no longer kept: read the state again, then go on from `first`."""
    data = json.dumps({"since": since, "first": first})
    return f"event: reset\ndata: {data}\n\n".encode()


async def events(request: Request) -> Response:
    """Server-sent events: `?tag=`, `?types=a,b`, `?since=<id>`; Last-Event-ID wins over `since`."""
    broadcast: Broadcast = request.app.state.broadcast
    try:
        wanted, since = _asked(request)
    except NightjarError as problem:
        return problem_response(problem)
    return StreamingResponse(
        broadcast.subscribe(wanted, since), media_type="text/event-stream", headers=HEADERS
    )


def _asked(request: Request) -> tuple[Filter, str | None]:
    known = {"tag", "types", "since"}
    if unknown := set(request.query_params) - known:
        raise Invalid(f"unknown parameters {sorted(unknown)[:5]}", hint=f"known are {sorted(known)}")
    tag = request.query_params.get("tag")
    if tag is not None and not re.fullmatch(TAG_PATTERN, tag):
        raise Invalid(f"{tag[:60]!r} is no tag", hint="GET /api/report/tags lists the tags")
    types = request.query_params.get("types")
    named = frozenset(t.strip() for t in types.split(",")) if types else None
    if named and (unknown := set(named - CATALOGUE)):
        raise Invalid(
            f"there are no events of type {sorted(unknown)[:5]}", hint=f"the types are {sorted(CATALOGUE)}"
        )
    since = request.headers.get("last-event-id") or request.query_params.get("since")
    if since is not None and not re.fullmatch(r"[0-9]{1,20}(-[0-9]{1,20})?", since):
        raise Invalid(
            f"{since[:60]!r} is no event id", hint="send the id of the last event you have seen, or 0"
        )
    return Filter(tag, named), since


@contextlib.asynccontextmanager
async def broadcasting(stream: Stream) -> AsyncIterator[Broadcast]:
    """A broadcast that reads while the process serves."""
    broadcast = Broadcast(stream)
    reading = asyncio.create_task(broadcast.run())
    try:
        yield broadcast
    finally:
        broadcast.close()
        await ended(reading)
