"""A closed-loop HTTP load: each connection sends its next request when the last one is answered.

It parses only the length of an answer, to use little CPU beside the server.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

Wanted = tuple[str, bytes]
"""A path and the JSON that is posted to it."""


@dataclass
class LoadResult:
    times: list[float] = field(default_factory=list)
    """Seconds until each successful answer."""
    refusal: bytes | None = None
    """The first answer that was not a success."""
    elapsed: float = 0.0

    @property
    def rate(self) -> float:
        return len(self.times) / self.elapsed

    def percentile(self, percent: float) -> float:
        """This percentile of the answers' times, in milliseconds."""
        ordered = sorted(self.times)
        return 1e3 * ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


async def load(port: int, wanted: Iterator[Wanted], seconds: float, connections: int) -> LoadResult:
    """Send requests for `seconds`, or until `wanted` is exhausted. Raises AssertionError: one was refused."""
    served = LoadResult()
    loop = asyncio.get_running_loop()
    begun = time.perf_counter()
    made = [
        await loop.create_connection(
            lambda: _Client(port, wanted, served, begun + seconds, loop.create_future()), "127.0.0.1", port
        )
        for _ in range(connections)
    ]
    await asyncio.gather(*(client.done for _, client in made))
    served.elapsed = time.perf_counter() - begun
    assert served.refusal is None, served.refusal[:2000].decode(errors="replace")
    return served


class _Client(asyncio.Protocol):
    def __init__(
        self, port: int, wanted: Iterator[Wanted], served: LoadResult, end: float, done: asyncio.Future[None]
    ) -> None:
        self.done = done
        self._host = f"Host: 127.0.0.1:{port}"
        self._wanted, self._served, self._end = wanted, served, end
        self._answer = b""
        self._sent = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports are not a subclass
        self._next()

    def data_received(self, data: bytes) -> None:
        answer = self._answer = self._answer + data
        head, found, body = answer.partition(b"\r\n\r\n")
        if not found or len(body) < int(head.lower().partition(b"content-length:")[2].partition(b"\r")[0]):
            return
        if answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 202")):
            self._served.times.append(time.perf_counter() - self._sent)
        else:
            self._served.refusal = answer
        self._answer = b""
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionError("the server closed a connection"))

    def _next(self) -> None:
        over = self._served.refusal is not None or time.perf_counter() > self._end
        wanted = None if over else next(self._wanted, None)
        if wanted is None:
            self.done.set_result(None)
            self._transport.close()
            return
        path, body = wanted
        head = f"POST {path} HTTP/1.1\r\n{self._host}\r\nContent-Type: application/json\r\n"
        self._sent = time.perf_counter()
        self._transport.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
