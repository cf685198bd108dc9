"""GET /api/events: the lab's events as server-sent events, live and from any point on.

One task per web process reads the stream. It encodes each event once, and hands what it has read to all subscribers
in one turn. The more subscribers there are, the longer it waits between two turns: requests of the same process come
first.

`min_interval=S` is for clients that need the present state rather than every event. They get at most one send in S
seconds: the newest event of each tag and type since the last one, in the stream's order. `superseded` in its data
counts the older events that were left out for it. The newer event has the greater id, so Last-Event-ID resumes with
everything that has not arrived. The events that were left out are still in the stream: ask without `min_interval` and
with an earlier `since`. If 2,000 tags and types wait, they are sent at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable, Iterator, Sequence
from dataclasses import asdict, dataclass, field

from starlette.datastructures import QueryParams
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from functions.kernel.process.lifecycle import Process
from functions.kernel.process.running import ended
from state.errors import Exhausted, Invalid, TooManyRequests, Unavailable
from state.events import CATALOGUE, Event
from state.ids import TAG_PATTERN
from state.stream import Stream, before, follows
from state.token_values import Proof
from state.tokens import Tokens
from state.wakeups import woken_within
from triggers.http.exchange import Exchange
from triggers.http.identity import LOOK_AGAIN_S, admit, still_admitted

log = logging.getLogger(__name__)

STREAMS = 2000
"""Open event streams of one web process."""
STREAMS_EACH = 16
"""Open event streams of one token in one web process."""
HEARTBEAT_S = 15.0
BACKLOG_PAGE = 500
LAST_AT_MOST = 1000
LOOKED_AT_MOST = 100_000
"""Events that are searched for the last ones of a kind."""
INTERVAL_AT_MOST_S = 3600.0
COME_BACK_S = 10.0
FOLLOW_S = 5.0
IDLE_S = 1.0
"""Without subscribers no event is read. The place to begin from is updated this often."""
AWAY_S = 60.0
"""After a read that takes longer, the process was stopped in the middle of it."""
SEND_S = 0.0003
"""Pause between two turns for each subscriber: about what a send to it takes."""
SLOW_AFTER = 2000
"""Undelivered events after which a subscriber is dropped: it comes back with Last-Event-ID and loses nothing."""
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

STILL_HERE = b": still here\n\n"
Blocks = AsyncGenerator[bytes, None]

ONLY: dict[str, frozenset[str]] = {"new_best": frozenset({"best.changed"})}
"""Names for the types that most subscribers want."""


@dataclass(frozen=True)
class Filter:
    """Which events a subscriber wants, and how often; None is all."""

    tag: str | None = None
    types: frozenset[str] | None = None
    min_interval_s: float = 0.0
    """Seconds between two sends; 0: every event, at once."""

    def wants(self, event: Event) -> bool:
        return (self.tag is None or event.tag == self.tag) and (
            self.types is None or event.type in self.types
        )


ALL = Filter()
NONE = Filter(types=frozenset())
"""Filter of a connection that is sent something else than events."""


@dataclass(frozen=True)
class Gap:
    """Events after `since` are no longer kept; the first one that is, is `first`."""

    since: str
    first: str


@dataclass(frozen=True)
class Batch:
    """Events of one turn that a filter lets through, with their encoding."""

    events: list[tuple[Event, bytes]]
    block: bytes


@dataclass(eq=False)
class Subscriber:
    """One connection: what it wants, and what it has not been sent yet."""

    wanted: Filter
    proof: Proof | None = None
    """The caller's proof; None: a caller on this machine, while the lab has no tokens."""
    waiting: asyncio.Queue[Batch | None] = field(default_factory=asyncio.Queue)
    undelivered: int = 0
    """Events that wait."""

    def offer(self, batch: Batch) -> bool:
        """False where the subscriber is too slow to go on."""
        if self.undelivered + len(batch.events) > SLOW_AFTER:
            return False
        self.undelivered += len(batch.events)
        self.waiting.put_nowait(batch)
        return True

    async def next(self) -> Batch | None:
        """The next events; None: the connection ends."""
        batch = await self.waiting.get()
        self.undelivered -= len(batch.events) if batch else 0
        return batch

    def close(self) -> None:
        """End the connection; whatever still waits is left to its next visit."""
        while not self.waiting.empty():
            self.waiting.get_nowait()
        self.waiting.put_nowait(None)


class Outbox:
    """What goes out with the next send: every event, or the newest of each tag and type once the interval is over."""

    def __init__(self, min_interval_s: float) -> None:
        self._min_interval_s = min_interval_s
        self._due_at = -math.inf
        self._waiting: dict[Hashable, tuple[Event, bytes, int]] = {}

    def add(self, event: Event, encoded: bytes) -> None:
        """Take an event in, later than all before it."""
        key = (event.tag, event.type) if self._min_interval_s else event.id
        older = self._waiting.pop(key, None)  # the newer one takes its place at the end
        self._waiting[key] = (event, encoded, older[2] + 1 if older else 0)

    def due_in(self, now: float) -> float:
        """Seconds until it is to be sent."""
        if not self._waiting:
            return math.inf
        return 0.0 if self.is_full else max(0.0, self._due_at - now)

    @property
    def is_full(self) -> bool:
        return len(self._waiting) >= (SLOW_AFTER if self._min_interval_s else BACKLOG_PAGE)

    def take(self, now: float) -> bytes:
        """Everything in it, in the stream's order."""
        self._due_at = now + self._min_interval_s
        blocks = [
            encode(event, superseded) if superseded else encoded
            for event, encoded, superseded in self._waiting.values()
        ]
        self._waiting.clear()
        return b"".join(blocks)


class Broadcast:
    """Reads the stream once for all subscribers of this process, at most `most` at a time, `most_each` of a token."""

    def __init__(self, stream: Stream, most: int, most_each: int) -> None:
        self._stream = stream
        self._most = most
        self._most_each = most_each
        self._connected: set[Subscriber] = set()
        self._subscribers: set[Subscriber] = set()
        """Subscribers that are still sent events. A slow reader is dropped here and still holds a connection."""
        self._arrival = asyncio.Event()
        self._reads_on = asyncio.Event()
        """Set once the first event to hand out is known. A subscriber reads earlier ones itself."""
        self._closed = False

    @property
    def subscribers(self) -> int:
        return len(self._subscribers)

    async def drop_revoked(self, tokens: Tokens) -> None:
        """Close the connections of callers who would no longer be let in, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_AGAIN_S)
            try:
                admitted = await still_admitted(tokens, {s.proof for s in self._subscribers})
            except Unavailable as problem:
                log.warning("event streams stay open, no caller can be identified: %s", problem.detail)
                continue
            except Exception:  # without this look a revoked token would keep its streams for ever
                log.exception("checking the readers of the event streams")
                continue
            for subscriber in [s for s in self._subscribers if s.proof not in admitted]:
                self._subscribers.discard(subscriber)
                subscriber.close()

    async def run(self) -> None:
        """Read until cancelled, while there are subscribers. After a Redis outage it reads on from where it was."""
        clock = asyncio.get_running_loop().time
        last: str | None = None
        while True:
            began = clock()
            try:
                last = last or await self._stream.newest()
                self._reads_on.set()
                if not self._subscribers:
                    newest = await self._stream.newest()
                    if not self._subscribers:  # else it would miss what happened since it came
                        last = newest
                        await woken_within(self._arrival, IDLE_S)
                    continue
                read = await self._stream.follow(last, wait_s=FOLLOW_S)
                if clock() - began > AWAY_S:
                    self._part()  # what we slept through may have been trimmed: only a new connection can tell
                if read:
                    last = read[-1].id
                    self._hand_out(read)
                    await asyncio.sleep(len(self._subscribers) * SEND_S)
            except Unavailable as problem:
                log.warning("the event stream: %s; reading on in a second", problem.detail)
                await asyncio.sleep(1)
            except Exception:  # without this reader every feed would stay open, and silent for ever
                log.exception("the event stream: reading on in a second")
                await asyncio.sleep(1)

    def close(self) -> None:
        """End every connection, now and from now on: the process stops."""
        self._closed = True
        self._reads_on.set()
        self._part()

    def _part(self) -> None:
        """End every connection; each comes back with Last-Event-ID."""
        for subscriber in list(self._subscribers):
            self._subscribers.discard(subscriber)
            subscriber.close()

    def _hand_out(self, events: Sequence[Event]) -> None:
        encoded = [(event, encode(event)) for event in events]
        batches = dict[Filter, Batch]()
        for subscriber in list(self._subscribers):
            wanted = subscriber.wanted
            if (batch := batches.get(wanted)) is None:
                those = [(event, block) for event, block in encoded if wanted.wants(event)]
                batch = batches[wanted] = Batch(those, b"".join(block for _, block in those))
            if batch.events and not subscriber.offer(batch):
                self._subscribers.discard(subscriber)
                subscriber.close()

    @contextlib.contextmanager
    def connected(self, wanted: Filter, proof: Proof | None = None) -> Iterator[Subscriber]:
        """A subscriber while its connection is open. Raises Exhausted: there are as many as it serves."""
        if len(self._connected) >= self._most:
            raise Exhausted(
                f"{len(self._connected)} event streams are open, as many as one web process serves",
                hint="close some, then resume with Last-Event-ID",
                retry_after=COME_BACK_S,
            )
        if proof is not None:
            self._check_share(proof.token_id)
        subscriber = Subscriber(wanted, proof)
        self._connected.add(subscriber)
        self._subscribers.add(subscriber)
        self._arrival.set()
        if self._closed:
            subscriber.close()
        try:
            yield subscriber
        finally:
            self._connected.discard(subscriber)
            self._subscribers.discard(subscriber)

    def _check_share(self, token_id: str) -> None:
        held = sum(1 for s in self._connected if s.proof is not None and s.proof.token_id == token_id)
        if held >= self._most_each:
            raise TooManyRequests(
                f"this token has {held} event streams open, as many as one may",
                hint="close some",
                retry_after=COME_BACK_S,
            )

    async def beginning(self, since: str | None, last: int = 0, wanted: Filter = ALL) -> str:
        """After which event to begin: `since`, or the `last` wanted ones of the newest 100,000."""
        if since is not None:
            return since
        begin = await self._stream.newest()
        cursor, looked, found = None, 0, 0
        while found < last and looked < LOOKED_AT_MOST:
            page = await self._stream.before(cursor, BACKLOG_PAGE)
            those = [event for event in page if wanted.wants(event)][: last - found]
            if those:
                begin = before(those[-1].id)
            if len(page) < BACKLOG_PAGE:
                break
            cursor, looked, found = page[-1].id, looked + len(page), found + len(those)
        return begin

    async def tell(self, subscriber: Subscriber, since: str) -> AsyncGenerator[bytes, None]:
        """Everything after `since`: first what has happened, then what happens.

        It begins with `since` as an id without an event: cut before any event came, the client resumes from there.
        """
        clock = asyncio.get_running_loop().time
        outbox = Outbox(subscriber.wanted.min_interval_s)
        yield f"id: {since}\n\n".encode()
        await self._reads_on.wait()
        spoke_at, last = clock(), since
        async for event in self._backlog(since):
            if isinstance(event, Gap):
                yield outbox.take(clock()) + reset(event)
                continue
            last = event.id
            if subscriber.wanted.wants(event):
                outbox.add(event, encode(event))
                if outbox.is_full:
                    yield outbox.take(clock())
        while True:
            now = clock()
            quiet_s = min(outbox.due_in(now), spoke_at + HEARTBEAT_S - now)
            if quiet_s <= 0:
                yield outbox.take(now) if outbox.due_in(now) <= 0 else STILL_HERE
                spoke_at = clock()
                continue
            try:
                batch = await asyncio.wait_for(subscriber.next(), quiet_s)
            except TimeoutError:
                continue
            if batch is None:
                return
            is_new = follows(batch.events[0][0].id, last)  # the backlog may have told it already
            if is_new and not subscriber.wanted.min_interval_s:
                spoke_at, last = clock(), batch.events[-1][0].id
                yield outbox.take(spoke_at) + batch.block
                continue
            for event, encoded in batch.events:
                if follows(event.id, last):
                    last = event.id
                    outbox.add(event, encoded)

    async def _backlog(self, after: str) -> AsyncIterator[Event | Gap]:
        while True:
            page = await self._stream.after(after, BACKLOG_PAGE)
            # Asked after the page was read: what was whole then was whole while it was read.
            if first := await self._stream.gap_after(after):
                yield Gap(after, first)
            for event in page:
                yield event
            if not page:
                return
            after = page[-1].id


def encode(event: Event, superseded: int = 0) -> bytes:
    """One event in the wire format; `id:` is what Last-Event-ID resumes from."""
    shown = event.envelope()
    if superseded:
        shown["superseded"] = superseded
    data = json.dumps(shown, ensure_ascii=False, separators=(",", ":"))
    return f"id: {event.id}\nevent: {event.type}\ndata: {data}\n\n".encode()


def reset(gap: Gap) -> bytes:
    """An event for a gap. A client that mirrors the lab reads it anew, then goes on from `first`."""
    data = json.dumps(asdict(gap))
    return f"event: reset\ndata: {data}\n\n".encode()


class EventStream(StreamingResponse):
    """The answer to one subscriber. Its place is free again as soon as the connection is closed."""

    def __init__(
        self,
        broadcast: Broadcast,
        wanted: Filter,
        proof: Proof | None,
        blocks: Callable[[Subscriber], Blocks],
    ) -> None:
        self._held = contextlib.ExitStack()
        subscriber = self._held.enter_context(broadcast.connected(wanted, proof))
        super().__init__(
            self._until_unavailable(blocks(subscriber)), media_type="text/event-stream", headers=HEADERS
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._held:
            if scope["method"] == "HEAD":  # it has no body that could end
                await Response(headers=HEADERS, media_type=self.media_type)(scope, receive, send)
                return
            await super().__call__(scope, receive, send)

    @staticmethod
    async def _until_unavailable(blocks: Blocks) -> AsyncIterator[bytes]:
        try:
            async with contextlib.aclosing(blocks) as telling:
                async for block in telling:
                    yield block
        except Unavailable as problem:
            log.warning("an event stream ends, its client comes back: %s", problem.detail)


async def events(exchange: Exchange) -> Response:
    """Server-sent events. Last-Event-ID wins over `since`, and that over `last`.

    `?tag=`, `?types=a,b` or `?only=new_best`: which; `?since=<id>` or `?last=<n>` (of these): from where on;
    `?min_interval=<seconds>`: how often at most; `?ticket=`: of event::ticket, where no header can be sent.
    """
    broadcast: Broadcast = exchange.app.state.broadcast
    visitor = await admit(exchange, "viewer", ticket=True)
    wanted = _wanted(exchange.query_params)
    since, last = _from_where(exchange)
    begin = await broadcast.beginning(since, last, wanted)
    return EventStream(broadcast, wanted, visitor.proof, lambda subscriber: broadcast.tell(subscriber, begin))


def _wanted(query: QueryParams) -> Filter:
    known = {"tag", "types", "only", "since", "last", "min_interval", "ticket"}
    if unknown := set(query) - known:
        raise Invalid(f"unknown parameters {sorted(unknown)[:5]}", hint=f"known are {sorted(known)}")
    tag = query.get("tag")
    if tag is not None and not re.fullmatch(TAG_PATTERN, tag):
        raise Invalid(f"{tag[:60]!r} is no tag", hint="GET /api/report/tags lists the tags")
    return Filter(tag, _types(query), _seconds(query.get("min_interval", "0")))


def _types(query: QueryParams) -> frozenset[str] | None:
    types, only = query.get("types"), query.get("only")
    if only is not None:
        chosen = ONLY.get(only)
        if chosen is None or types:
            raise Invalid(
                f"only={only[:60]} cannot be served" + (" beside types" if types else ""),
                hint=f"send only={' or only='.join(sorted(ONLY))}, or types; without both all events come",
            )
        return chosen
    named = frozenset(t.strip() for t in types.split(",")) if types else None
    if named and (unknown := named - CATALOGUE.keys()):
        raise Invalid(
            f"there are no events of type {', '.join(sorted(unknown)[:5])}",
            hint=f"the types are {', '.join(sorted(CATALOGUE))}",
        )
    return named


def _seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 <= (seconds := float(text)) <= INTERVAL_AT_MOST_S:
            return seconds
    raise Invalid(
        f"min_interval is {text[:60]!r}", hint=f"send seconds between 0 and {INTERVAL_AT_MOST_S:.0f}"
    )


def _from_where(exchange: Exchange) -> tuple[str | None, int]:
    since = exchange.header("last-event-id") or exchange.query_params.get("since")
    if since is not None and not re.fullmatch(r"[0-9]{1,19}(-[0-9]{1,19})?", since):
        raise Invalid(
            f"{since[:60]!r} is no event id", hint="send the id of the last event you have seen, or 0"
        )
    last = exchange.query_params.get("last", "0")
    if not re.fullmatch(r"[0-9]{1,4}", last) or int(last) > LAST_AT_MOST:
        raise Invalid(f"last is {last[:60]!r}", hint=f"send a number from 0 to {LAST_AT_MOST}")
    return since, int(last)


@contextlib.asynccontextmanager
async def broadcasting(process: Process) -> AsyncIterator[Broadcast]:
    """A broadcast that reads while the process serves."""
    broadcast = Broadcast(process.stream, STREAMS, STREAMS_EACH)
    reading = asyncio.create_task(broadcast.run())
    watching = asyncio.create_task(broadcast.drop_revoked(process.tokens))
    try:
        yield broadcast
    finally:
        broadcast.close()
        await ended(reading, watching)
