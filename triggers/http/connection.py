"""Limits of one connection: how many bytes and seconds a request may take to arrive.

uvicorn reads a head of any length, and a request at any pace, from anybody. Here a head ends within 64 KiB and 30
seconds, and a body within 30 seconds. A body that nobody reads any more ends within 5 seconds of its answer. The
answer to a refused request is a problem document.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from triggers.http.problems import problem_document

HEAD_BYTES = 64 * 1024
HEAD_S = 30.0
BODY_S = 30.0
"""Seconds for a whole body. A slower sender would hold a connection and a request for nothing."""
HEAD_END = b"\n\r\n"
UPGRADE = re.compile(rb"\n(?i:upgrade)(?=[ \t]*:)")
"""Begins with a plain character, for which a regular expression is searched much faster."""
LENGTH, CHUNKED = b"content-length", b"transfer-encoding"
BODIES = frozenset({LENGTH, CHUNKED})
"""Headers of a request that has a body."""
LINGER_S = 5.0
"""A client that is still sending has so long to see its answer: closed at once, the connection would lose it."""


class JoinedWrites:
    """A transport that sends what one turn of the event loop writes in one piece: an answer's head with its body."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._pieces: list[bytes] = []
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        if not self._pieces:
            self._loop.call_soon(self._send)
        self._pieces.append(data)

    def close(self) -> None:
        self._send()
        self._transport.close()

    def _send(self) -> None:
        pieces, self._pieces = self._pieces, []
        if pieces and not self.is_closing():  # uvloop raises where the client left meanwhile
            self._transport.write(b"".join(pieces))


class LimitedConnection(HttpToolsProtocol):
    """uvicorn's, with limits on heads and on bodies that are not read."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._head_bytes = 0
        self._held = b""
        self._in_head = True
        self._in_body = False
        self._body_left = 0
        """Bytes of the body that have not arrived; 0 if its length is unknown. Another head follows them."""
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        super().connection_made(transport)
        self.transport = JoinedWrites(transport, self.loop)  # type: ignore[assignment]  # all that it uses of one
        self._ends_within(HEAD_S)

    def connection_lost(self, exc: Exception | None) -> None:
        self._ends_within(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        while data and not self.transport.is_closing():
            if self._in_head:
                piece = data[: HEAD_BYTES + 1 - self._head_bytes]
                end = (self._held + piece).find(HEAD_END)
                piece = piece if end < 0 else piece[: end + len(HEAD_END) - len(self._held)]
                self._head_bytes += len(piece)
                super().data_received(self._without_upgrade(piece))
                self._give_back()
            else:
                piece = data[: self._body_left or len(data)]
                self._body_left -= min(self._body_left, len(piece))
                super().data_received(piece)
            data = data[len(piece) :]
            if self._in_head and self._head_bytes > HEAD_BYTES:
                self._refuse(
                    431, f"the head of the request is over {HEAD_BYTES // 1024} KiB", "send shorter headers"
                )
        if self._deadline is None and not self.transport.is_closing():
            if self._in_body:
                self._ends_within(BODY_S)
            elif self._head_bytes:
                self._ends_within(HEAD_S)

    def _give_back(self) -> None:
        """Read what was held of a body: its head had ended in an earlier piece."""
        if self._held and not self._in_head:
            held, self._held = self._held, b""
            super().data_received(held)

    def _without_upgrade(self, piece: bytes) -> bytes:
        """A piece of a head in which no other protocol is asked for: a server may ignore that.

        httptools takes what follows such a head for the other protocol, so that a body would be lost, or read as
        another request. What may be the beginning of a line that matters is held until the rest of it has come.
        """
        piece = self._held + piece
        whole, newline, begun = piece.rpartition(b"\n")
        is_held = newline and any(word.startswith(begun.lower()) for word in (b"upgrade:", b"\r\n"))
        self._held = newline + begun if is_held and not piece.endswith(HEAD_END) else b""
        return UPGRADE.sub(b"\nignored", whole if self._held else piece)

    def on_headers_complete(self) -> None:
        self._ends_within(None)
        self._in_head = False
        given = dict(self.headers)
        assert self.parser is not None
        # it came in one packet with a chunked body
        if self.parser.should_upgrade() and BODIES & given.keys():
            self._refuse(
                400, "a request that asks for another protocol has a body", "send it without Upgrade"
            )
            return
        self._in_body = True
        self._body_left = 0 if CHUNKED in given else int(given.get(LENGTH, 0))
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self.cycle is not None:
            super().on_message_complete()
        self._in_head, self._in_body, self._head_bytes = True, False, 0
        is_answered = self.cycle is None or self.cycle.response_complete  # none: it was refused
        self._ends_within(LINGER_S if is_answered else None)  # uvicorn's own end was put off

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._in_body and not self.pipeline:
            self._ends_within(LINGER_S)

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "this is no HTTP request that can be read", "GET /docs shows the requests")

    def _unsupported_upgrade_warning(self) -> None:
        """A request for another protocol is answered in this one, without a line in the log."""

    def _ends_within(self, seconds: float | None) -> None:
        """Close the connection then, unless told otherwise before."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self._too_late)

    def _too_late(self) -> None:
        self._deadline = None
        if self._in_body and not self.cycle.response_started:
            self._refuse(
                408,
                f"the body did not arrive within {BODY_S:g} seconds",
                "send it in one go, then repeat the request",
            )
        elif self._in_head and self._head_bytes:
            self._refuse(
                408, f"no whole request came within {HEAD_S:g} seconds", "connect when there is one to send"
            )
        else:
            self.transport.close()

    def _refuse(self, status: int, detail: str, hint: str) -> None:
        """Answer and hang up; where an answer is on its way already, hang up."""
        self._ends_within(None)
        if self.transport.is_closing():
            return
        is_its = self._in_body and self.cycle is not None and not self.pipeline
        if is_its and not self.cycle.response_started:
            self.cycle.disconnected = True  # it is answered here
            self.cycle.message_event.set()
            self.transport.write(_on_the_wire(problem_document(status, TITLES[status], detail, hint=hint)))
        elif self.cycle is None or self.cycle.response_complete:
            self.transport.write(_on_the_wire(problem_document(status, TITLES[status], detail, hint=hint)))
        self.transport.close()


TITLES = {400: "Malformed request", 408: "Request too slow", 431: "Head too large"}


def _on_the_wire(answer: Response) -> bytes:
    headers = [*answer.raw_headers, (b"connection", b"close")]
    lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
    return STATUS_LINE[answer.status_code] + lines + b"\r\n" + bytes(answer.body)
