"""One connection to Redis for all calls of a process, and one that hears its events.

Commands of one turn of the event loop go out in one write. Replies return in the same order. redis-py opens and
secures the connection, hiredis reads it. redis-py's asyncio client would take a connection for each call. That costs
more CPU than the rest of a request.

No command is sent twice: a lost connection fails all waiting calls, and the next call opens a new one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import hiredis
from redis._parsers.base import BaseParser
from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.exceptions import (
    ConnectionError,
    InvalidResponse,
    MovedError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TimeoutError,
)

from state.moves import Prepared

Words = Sequence[str | int | float | bytes]


class SharedConnection:
    """The shared connection, opened at the first call."""

    def __init__(self, pool: ConnectionPool, timeout_s: float) -> None:
        self._pool = pool
        """Knows how connections are made; none is taken from it."""
        self._timeout_s = timeout_s
        self._line: _Line | None = None
        self._opening: asyncio.Task[_Line] | None = None

    def ask(self, commands: Sequence[Words]) -> Awaitable[list[Any]]:
        """The replies to several commands. An error reply is returned in its place as an exception.

        No command may block in Redis, change the connection's state or begin a transaction: all calls share the
        connection.

        Raises:
            redis.exceptions.ConnectionError: the connection is lost. redis.exceptions.TimeoutError: no reply in time.
                Whether Redis did what was asked is then unknown.
        """
        packed, line = _packed(commands), self._line
        if line is None or line.lost is not None:
            return self._asked_of_another(len(commands), packed)
        return line.ask(len(commands), packed)

    async def _asked_of_another(self, expects: int, packed: bytes) -> list[Any]:
        line = await self._opened()
        return await line.ask(expects, packed)

    async def close(self) -> None:
        """End the connection; calls that still wait fail."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        if self._line is not None:
            self._line.lose(ConnectionError("closed"))
            if self._line.ended is not None:
                await asyncio.wait([self._line.ended])

    async def _opened(self) -> _Line:
        """A new connection, shared by all callers that wait for one. A caller that gives up does not end the
        attempt."""
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(self._has_opened)
        return await asyncio.shield(self._opening)

    def _has_opened(self, _: asyncio.Task[_Line]) -> None:
        self._opening = None

    async def _open(self) -> _Line:
        connection: AbstractConnection = self._pool.make_connection()  # type: ignore[no-untyped-call]
        try:
            async with asyncio.timeout(self._timeout_s):
                await connection.connect()  # type: ignore[no-untyped-call]
        except BaseException as problem:
            await connection.disconnect(nowait=True)
            if isinstance(problem, asyncio.TimeoutError):
                raise TimeoutError("no connection in time") from problem
            raise
        self._line = _Line(connection, self._timeout_s)
        return self._line


@dataclass(slots=True)
class _Question:
    """The replies that one call waits for."""

    expects: int
    answered: asyncio.Future[list[Any]]
    overdue_at: float
    replies: list[Any] = field(default_factory=list)


class _Line(asyncio.Protocol):
    """One connection while it lasts. hiredis reads what comes in, and the callers get it without a task between."""

    def __init__(self, connection: AbstractConnection, timeout_s: float) -> None:
        self.lost: RedisError | None = None
        self._connection = connection
        self.ended: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport = connection._writer.transport  # type: ignore[union-attr, assignment]
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._reader = _reader(connection)
        self._unsent: list[bytes] = []
        self._asked: deque[_Question] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._transport.set_protocol(self)

    def ask(self, expects: int, packed: bytes) -> asyncio.Future[list[Any]]:
        """The replies, when they have come. A caller that gives up leaves the order of the others as it is."""
        question = _Question(expects, self._loop.create_future(), self._loop.time() + self._timeout_s)
        if self.lost is not None:
            question.answered.set_exception(self.lost)
            return question.answered
        if not self._unsent:
            self._loop.call_soon(self._send)  # with what else is asked in this turn of the loop
        self._asked.append(question)
        self._unsent.append(packed)
        if self._timer is None:
            self._timer = self._loop.call_at(question.overdue_at, self._look)
        return question.answered

    def lose(self, problem: RedisError) -> None:
        """Give the connection up: every call that waits fails."""
        if self.lost is not None:
            return
        self.lost = problem
        if self._timer is not None:
            self._timer.cancel()
        for question in self._asked:
            if not question.answered.done():
                question.answered.set_exception(problem)
        self._asked.clear()
        self._unsent.clear()
        self._transport.abort()
        self.ended = self._loop.create_task(self._connection.disconnect(nowait=True))

    def data_received(self, data: bytes) -> None:
        reader, asked = self._reader, self._asked
        reader.feed(data)
        try:
            while self.lost is None and (reply := reader.gets()) is not _NO_REPLY:
                is_error = isinstance(reply, RedisError)
                if is_error and not isinstance(reply, ResponseError):
                    raise reply  # such as a server that still loads its data
                if not asked:
                    raise ConnectionError("Redis sent what nothing asked for")
                question = asked[0]
                replies = question.replies
                replies.append(reply)
                if len(replies) == question.expects:
                    asked.popleft()
                    if not question.answered.done():
                        question.answered.set_result(replies)
                if is_error and is_elsewhere(reply):  # another connection finds the primary
                    raise ConnectionError("Redis has become a replica")
        except RedisError as problem:
            self.lose(problem)
        except ValueError as problem:  # UnicodeDecodeError: what follows cannot be read either
            self.lose(ConnectionError(f"Redis sent what is no text: {problem}"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Redis hung up, or the network did; known at once, also while nothing is asked."""
        self.lose(ConnectionError(f"Connection closed by server: {exc or 'the end of the stream'}"))

    def _send(self) -> None:
        if self._unsent:
            self._transport.write(b"".join(self._unsent))
            self._unsent.clear()

    def _look(self) -> None:
        """Lose the connection if the call that has waited longest is overdue."""
        self._timer = None
        if not self._asked:
            return
        if self._loop.time() >= (overdue_at := self._asked[0].overdue_at):
            self.lose(TimeoutError("no reply in time"))
        else:
            self._timer = self._loop.call_at(overdue_at, self._look)


async def hear(
    connection: AbstractConnection, channels: str, heard: Callable[[str, str], None], patience_s: float
) -> NoReturn:
    """Call `heard` with the channel and each message on the channels of a pattern, on a connection of its own.

    Raises:
        redis.exceptions.RedisError: the connection is lost, or silent for `patience_s` after a ping. What `heard`
            raises.
    """
    try:
        async with asyncio.timeout(patience_s):
            await connection.connect()  # type: ignore[no-untyped-call]
        ears = _Ears(connection, heard)
        ears.send("PSUBSCRIBE", channels)
        while True:
            ears.is_quiet = True
            ears.send("PING")
            await asyncio.wait([ears.lost], timeout=patience_s)
            if ears.lost.done():
                raise ears.lost.result()
            if ears.is_quiet:
                raise TimeoutError("no answer to a ping")
    finally:
        await connection.disconnect(nowait=True)


class _Ears(asyncio.Protocol):
    """A connection that has subscribed. redis-py takes several turns of the event loop for each message."""

    def __init__(self, connection: AbstractConnection, heard: Callable[[str, str], None]) -> None:
        self._heard = heard
        self._reader = _reader(connection)
        self._transport: asyncio.Transport = connection._writer.transport  # type: ignore[union-attr, assignment]
        self.lost: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        """Why it hears no more."""
        self.is_quiet = True
        """Whether nothing came since this was set."""
        self._transport.set_protocol(self)

    def send(self, *words: str) -> None:
        self._transport.write(_packed([words]))

    def data_received(self, data: bytes) -> None:
        self.is_quiet = False
        self._reader.feed(data)
        try:
            while (reply := self._reader.gets()) is not _NO_REPLY:
                if isinstance(reply, RedisError):
                    raise reply
                if reply[0] == "pmessage":
                    self._heard(*reply[-2:])
        except Exception as problem:  # noqa: BLE001 (who listens raises it)
            self._lose(problem)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(ConnectionError(f"Connection closed by server: {exc or 'the end of the stream'}"))

    def _lose(self, problem: Exception) -> None:
        if not self.lost.done():
            self.lost.set_result(problem)


def is_elsewhere(problem: RedisError) -> bool:
    """Whether this server is no longer the primary of the keys. A Cluster's scripts without KEYS say it in words."""
    return isinstance(problem, ReadOnlyError | MovedError) or "access a non local key" in str(problem)


_NO_REPLY = object()
"""No whole reply has come yet."""


def _reader(connection: AbstractConnection) -> hiredis.Reader:
    return hiredis.Reader(
        protocolError=InvalidResponse,
        replyError=BaseParser.parse_error,
        notEnoughData=_NO_REPLY,
        encoding=connection.encoder.encoding,
        errors=connection.encoder.encoding_errors,
    )


def _packed(commands: Sequence[Words]) -> bytes:
    """Commands as they are sent; a name of two words, such as XINFO STREAM, as two."""
    packed: list[bytes] = []
    for words in commands:  # no call for each: a request has twenty
        prepared = words if isinstance(words, Prepared) else None
        if prepared is not None and prepared.packed is not None:
            packed.append(prepared.packed)
            continue
        first = words[0]
        split = (*first.split(), *words[1:]) if isinstance(first, str) and " " in first else tuple(words)
        packed.append(hiredis.pack_command(split))  # type: ignore[arg-type]  # its stub means a tuple of any length
        if prepared is not None:
            prepared.packed = packed[-1]
    return b"".join(packed)
