"""A door in front of Redis that counts sequential round trips, whatever client comes through it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import hiredis
import redis
from redis.connection import parse_url

SET_UP = frozenset({"AUTH", "CLIENT", "HELLO", "PING", "SELECT"})
"""What a connection says of itself, once."""
LISTENING = frozenset({"SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"})
"""A connection that has said this waits for messages: nothing on it is a round trip. Nor is a read that blocks."""
SCRIPTS = frozenset({"EVAL", "EVALSHA", "FCALL"})
"""They write; a script that only reads is called with EVALSHA_RO."""
MOST_BYTES = 1 << 20


@dataclass
class Trips:
    """What passed through the door since `begin`, one list of commands for each round trip.

    Commands that are sent before the answer to another one share its round trip, on one connection or on several.
    """

    url: str
    writing: frozenset[str]
    """Commands that write."""
    made: list[list[str]] = field(default_factory=list)
    _answered: bool = True

    def begin(self) -> None:
        """Count from now on."""
        self.made, self._answered = [], True

    @property
    def moves(self) -> int:
        """Round trips that write."""
        return sum(any(name in self.writing for name in trip) for trip in self.made)

    @property
    def reads(self) -> int:
        """Round trips that only read."""
        return len(self.made) - self.moves

    def asked(self, name: str) -> None:
        if self._answered:
            self.made.append([])
        self._answered = False
        self.made[-1].append(name)

    def answered(self) -> None:
        self._answered = True


@asynccontextmanager
async def counted(url: str) -> AsyncIterator[Trips]:
    """A door to the Redis at `url`, with an address of its own, on this event loop."""
    there = parse_url(url)  # type: ignore[no-untyped-call]
    with redis.Redis.from_url(url) as client:
        commands: dict[str, dict[str, Any]] = client.command()
    writing = {name.upper() for name, facts in commands.items() if "write" in facts["flags"]}
    server = await asyncio.start_server(lambda r, w: serve(r, w), "127.0.0.1", 0, limit=MOST_BYTES)
    port = server.sockets[0].getsockname()[1]
    user, password = (quote(str(there.get(name) or ""), safe="") for name in ("username", "password"))
    trips = Trips(f"redis://{user}:{password}@127.0.0.1:{port}/{there.get('db', 0)}", SCRIPTS | writing)
    open_: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_.add(task)
        with suppress(ConnectionError, asyncio.CancelledError):
            await _Connection(trips).relay(reader, writer, there)
        open_.discard(task)

    async with server:
        yield trips
        for task in open_:
            task.cancel()
        await asyncio.gather(*open_, return_exceptions=True)


class _Connection:
    """One connection of a client, and ours to Redis behind it."""

    def __init__(self, trips: Trips) -> None:
        self._trips = trips
        self._owed: deque[bool] = deque()
        """Of each command whose answer has not come: whether it counts."""
        self._listens = False

    async def relay(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, there: dict[str, Any]
    ) -> None:
        if "path" in there:
            answers, requests = await asyncio.open_unix_connection(there["path"])
        else:
            answers, requests = await asyncio.open_connection(there["host"], there["port"])
        try:
            await asyncio.gather(
                self._pass(reader, requests, self._asked), self._pass(answers, writer, self._answered)
            )
        finally:
            requests.close()
            writer.close()

    async def _pass(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, note: Callable[[Iterator[Any]], None]
    ) -> None:
        parser = hiredis.Reader(notEnoughData=_MORE)
        while data := await source.read(MOST_BYTES):
            parser.feed(data)
            note(iter(parser.gets, _MORE))
            sink.write(data)
            await sink.drain()
        sink.close()

    def _asked(self, commands: Iterator[list[bytes]]) -> None:
        for words in commands:
            name = words[0].decode().upper()
            self._listens = self._listens or name in LISTENING
            counts = not self._listens and name not in SET_UP and b"BLOCK" not in words[:4]
            self._owed.append(counts)
            if counts:
                self._trips.asked(name)

    def _answered(self, answers: Iterator[object]) -> None:
        for _ in answers:
            if not self._listens and self._owed.popleft():
                self._trips.answered()


_MORE = object()
