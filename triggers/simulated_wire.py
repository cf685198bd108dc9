"""How simulated workers reach the server: requests are repeated until answered, and each is timed and traced.

A book has what they sent and received, for a comparison with the server's records at the end.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from types import TracebackType
from typing import Any, Self, TextIO
from urllib.parse import urlsplit

from httptools import HttpParserError, HttpResponseParser

from functions.trust.rules.audit_tags import Acknowledged
from state.errors import Unavailable

PATIENCE_S = 180.0
"""Seconds for which an unanswered request is repeated; a restarting server is back before."""
TIMEOUT_S = 30.0
"""Seconds until an answer."""
SETTLE_S = 0.05
"""Seconds in which workers take in the last answers, before they are ended."""
BACKOFF_S = (0.05, 2.0)
"""Seconds before a request without an answer is repeated: at first, and at most."""
LATER = frozenset({429, 502, 503, 504})
"""Statuses that ask to come again."""


class Refused(Exception):
    """An answer that no repeat makes better."""

    def __init__(self, call: str, status: int, text: str, *, is_repeat: bool) -> None:
        super().__init__(f"{call}: {status} {text[:300]}")
        self.status = status
        self.is_repeat = is_repeat
        """Whether the request was sent before, without an answer: the server may have done what it asks."""


@dataclass
class WireMeter:
    """What went over the wire."""

    times: dict[str, list[float]] = field(default_factory=dict)
    """Seconds until each answer by call, from when the request was due."""
    answers: int = 0
    thrown_away: int = 0
    """Answers that were lost on purpose."""
    unanswered: int = 0
    """Requests that failed on their way, or were asked to come again; all were repeated."""

    def percentile(self, call: str, percent: float) -> float | None:
        """This percentile of a call's times in seconds; None where there are none."""
        ordered = sorted(self.times.get(call, ()))
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] if ordered else None


class Wire:
    """One server, shared by all simulated workers."""

    def __init__(
        self, url: str, seed: str, *, losses: float = 0.0, most_at_once: int = 64, trace: TextIO | None = None
    ) -> None:
        self.meter = WireMeter()
        self._chance = Random(f"{seed}/wire")
        self._losses = losses
        self._trace = trace
        tls = ssl.create_default_context() if url.startswith("https:") else None
        self._connections = [WireConnection(url, tls) for _ in range(most_at_once)]
        self._idle: asyncio.LifoQueue[WireConnection] = asyncio.LifoQueue()
        for connection in self._connections:
            self._idle.put_nowait(connection)
        self._pending = 0
        """Copies of requests that were sent or will be, and have no answer yet."""
        self._is_quiet = asyncio.Event()
        self._is_held = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, where: TracebackType | None
    ) -> None:
        for connection in self._connections:
            connection.close()

    @asynccontextmanager
    async def held(self) -> AsyncIterator[int]:
        """Send no request within this context; the value is how many of those before have no answer in half a minute.

        Who asks meanwhile waits until it is cancelled.
        """
        self._is_held = True
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(TIMEOUT_S):
                    while self._pending:
                        self._is_quiet.clear()
                        await self._is_quiet.wait()
            await asyncio.sleep(SETTLE_S)
            yield self._pending
        finally:
            self._is_held = False

    async def ask(
        self,
        call: str,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        token: str | None = None,
        due: float | None = None,
        is_kept: bool = False,
    ) -> Any:
        """As `answer`, of a request with these parts."""
        return await self.answer(WireRequest(call, method, path, body, token), due, is_kept=is_kept)

    async def answer(self, request: WireRequest, due: float | None = None, *, is_kept: bool = False) -> Any:
        """The answer to one copy of a request, repeated until there is one; `due` is when it had to be sent.

        Time on the loop's clock. An answer of a call that `is_kept` is never thrown away.

        Raises:
            Refused: the answer is a refusal. Unavailable: no answer for three minutes.
        """
        clock = asyncio.get_running_loop().time
        due = clock() if due is None else due
        give_up, wait_s, is_repeat = clock() + PATIENCE_S, BACKOFF_S[0], False
        self._pending += 1
        try:
            while True:
                sent = await self._sent(request, due)
                if isinstance(sent, Answer) and sent.status not in LATER:
                    if not sent.is_success:
                        text = sent.body.decode(errors="replace")
                        raise Refused(request.call, sent.status, text, is_repeat=is_repeat)
                    if is_kept or self._chance.random() >= self._losses:
                        return json.loads(sent.body) if sent.body else None
                    self.meter.thrown_away += 1
                else:
                    self.meter.unanswered += 1
                    if clock() > give_up:
                        text = f"{request.call}: no answer for {PATIENCE_S:.0f} s"
                        raise Unavailable(text, hint="is the server up?")
                    await asyncio.sleep(min(_retry_after(sent) or wait_s, PATIENCE_S))
                    wait_s = min(2 * wait_s, BACKOFF_S[1])
                due, is_repeat = clock(), True
        finally:
            self._leave()

    def _leave(self) -> None:
        self._pending -= 1
        if not self._pending:
            self._is_quiet.set()

    async def _sent(self, request: WireRequest, due: float) -> Answer | None:
        """The answer on the wire, if there is one."""
        clock = asyncio.get_running_loop().time
        connection = await self._idle.get()
        if self._is_held and not request.is_sent:
            self._idle.put_nowait(connection)
            self._leave()
            try:
                await asyncio.Event().wait()
            finally:
                self._pending += 1  # `answer` takes it off again
        request.is_sent = True
        begun, answer = clock(), None
        try:
            with suppress(OSError, HttpParserError):
                async with asyncio.timeout(TIMEOUT_S):
                    answer = await connection.answer(request)
        finally:
            self._idle.put_nowait(connection)
        took = clock() - due
        if answer is not None:
            self.meter.answers += 1
            self.meter.times.setdefault(request.call, []).append(took)
        self._write(request, None if answer is None else answer.status, took, begun - due)
        return answer

    def _write(self, request: WireRequest, status: int | None, took: float, waited: float) -> None:
        if self._trace is not None:
            row = {
                "at": time.time(),
                "call": request.call,
                "method": request.method,
                "path": request.path,
                "status": status,
                "ms": round(took * 1e3, 3),
                "sent_late_ms": round(waited * 1e3, 3),
            }
            self._trace.write(f"{json.dumps(row)}\n")


@dataclass
class WireRequest:
    call: str
    method: str
    path: str
    body: Mapping[str, Any] | None
    token: str | None
    is_sent: bool = False
    """A copy of it was sent: then the others are, too."""


@dataclass
class Answer:
    """An answer, which httptools fills in."""

    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""
    is_whole: bool = False

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300 or self.status == 304

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.lower()] = value

    def on_body(self, part: bytes) -> None:
        self.body += part

    def on_message_complete(self) -> None:
        self.is_whole = True


class WireConnection:
    """One connection to a server; it takes a tenth of the CPU time that httpx would. Proxies are not asked."""

    def __init__(self, url: str, tls: ssl.SSLContext | None) -> None:
        at = urlsplit(url)
        self._at = (at.hostname or "", at.port or (443 if tls else 80))
        self._tls = tls
        self._path = at.path
        self._host = at.netloc.rpartition("@")[2]
        self._open: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def answer(self, to: WireRequest) -> Answer:
        """Raises OSError: there is none. HttpParserError: it is not HTTP."""
        content, head = b"", f"{to.method} {self._path}{to.path} HTTP/1.1\r\nHost: {self._host}\r\n"
        if to.token is not None:
            head += f"X-Worker-Token: {to.token}\r\n"
        if to.body is not None:
            content = json.dumps(to.body).encode()
            head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
        if self._open is None or self._open[0].at_eof():
            self.close()
            self._open = await asyncio.open_connection(*self._at, ssl=self._tls)
        reader, writer = self._open
        answer, is_kept = Answer(), False
        parser = HttpResponseParser(answer)
        try:
            writer.write(f"{head}\r\n".encode() + content)
            while not answer.is_whole:
                if not (read := await reader.read(1 << 16)):
                    raise ConnectionResetError("the server closed the connection")
                parser.feed_data(read)
            answer.status = parser.get_status_code()
            is_kept = answer.headers.get(b"connection", b"").lower() != b"close"
        finally:
            if not is_kept:
                self.close()
        return answer

    def close(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None


def _retry_after(answer: Answer | None) -> float | None:
    """Seconds after which a refusal asks to come again; None where it does not say."""
    said = b"" if answer is None else answer.headers.get(b"retry-after", b"")
    return float(said) if said.isdigit() else None


@dataclass
class Book:
    """The notes of all workers of one simulation."""

    acknowledged: dict[str, Acknowledged] = field(default_factory=dict)
    """Runs whose results the server took, and those that it stopped."""
    abandoned: dict[str, str] = field(default_factory=dict)
    """Runs whose workers died, with their configs as texts."""
    configs: Counter[str] = field(default_factory=Counter)
    """How often each config was handed out, as text, as a run of its own."""
    runs: set[str] = field(default_factory=set)
    """Every run that was handed out."""
    tried: dict[str, set[str]] = field(default_factory=dict)
    """Runs whose configs name a hidden constant, by its name."""
    is_over: bool = False
    """No worker begins another run."""
    best_delta: float | None = None
    kills: int = 0
    told_to_extend: int = 0
    crashes: int = 0
    late: int = 0
    duplicates: int = 0
    reordered: int = 0
    repeats: int = 0
    trained_s: float = 0.0
    """Simulated GPU seconds."""
    saved_s: float = 0.0
    """Those that stopped runs would have taken beside that."""
    extra_s: float = 0.0
    """Of `trained_s`, those of extensions."""
    rounds_left: dict[str, int] = field(default_factory=dict)
    """Runs that each dead worker still owed."""
    faults: list[str] = field(default_factory=list)
    """What no worker should have seen."""

    @property
    def handed_on(self) -> int:
        """Configs of dead workers' runs that another run got since."""
        owed = Counter(self.abandoned.values())
        return sum(min(count, self.configs[text] - count) for text, count in owed.items())
