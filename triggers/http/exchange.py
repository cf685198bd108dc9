"""One HTTP request with its ids and the status of its answer: the context that all code for a request shares."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from functions.kernel.process.lifecycle import Process
from state.traceparent import random_hex

GONE = 499
"""Status of a request whose client left before the answer. It is counted and logged, never sent."""

_LOGGABLE = re.compile(r"[\w.:/+=@-]{1,96}", re.ASCII)


class Exchange(Request):
    """A request, its ids, and the status of its answer."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        super().__init__(scope, receive, send)
        scope["exchange"] = self
        self.process: Process = scope["app"].state.process
        sent = reversed(scope["headers"])
        self._by_name = {name.decode("latin-1"): value.decode("latin-1") for name, value in sent}
        given = self.header("x-request-id") or ""
        self.request_id = given if _LOGGABLE.fullmatch(given) else random_hex(8)
        """The caller's own if it can stand in a log, else a new one."""
        self.traceparent = ""
        """W3C's trace context for whatever this request causes."""
        self.route: str | None = None
        """Path of the endpoint with its parameters' names; None until it is known."""
        self.function = ""
        """Name of the function that answers, once it is known."""
        self.status = GONE
        self.refused: str | None = None
        """Class of the error that was answered."""
        self.fault: Exception | None = None
        """Bug that the request ran into."""

    @staticmethod
    def of(request: Request) -> Exchange:
        """The exchange of a request that came through Starlette's router or the MCP SDK."""
        found: Exchange = request.scope["exchange"]
        return found

    def header(self, name: str) -> str | None:
        return self._by_name.get(name)

    def header_lines(self, name: str) -> list[str]:
        if name not in self._by_name:
            return []
        key = name.encode()
        return [value.decode("latin-1") for each, value in self.scope["headers"] if each == key]

    async def reply(self, message: Message) -> None:
        """Send a part of the answer; its head carries the ids (`traceresponse` as W3C drafts it)."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            ids = (b"x-request-id", self.request_id.encode()), (b"traceresponse", self.traceparent.encode())
            message["headers"] = [*message["headers"], *ids]
        await self._send(message)


Endpoint = Callable[[Exchange], Awaitable[Response]]
