"""What surrounds every HTTP request: its ids, trace, count and line, and an answer even where we fail."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from functions.process.context import bound
from functions.process.lifecycle import Process
from functions.process.logs import EXTRA
from state.traceparent import accepted, random_hex, trace_id
from triggers.http.problems import problem_document

log = logging.getLogger(__name__)

QUIET = frozenset({"/healthz", "/readyz", "/metrics", "/static"})
"""Routes that machines ask for all day: their lines are for debugging only."""
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
ELSEWHERE = "(none)"
"""The route of a request that has none. Its path is not shown: callers would choose labels and lines."""
GONE = 499
"""The status of a request whose client left before the answer; never sent."""


class Access:
    """ASGI middleware around all others.

    It leaves `request_id` and `traceparent` in `request.state`, and the answer carries both (`X-Request-Id`, and
    `traceresponse` as W3C drafts it). Lines hold neither bodies nor queries, and a route instead of a path.
    """

    def __init__(self, app: ASGIApp, *, routes: Sequence[BaseRoute]) -> None:
        self.app = app
        self._templates = {
            getattr(route, "endpoint", None) or getattr(route, "app", None): getattr(route, "path", ELSEWHERE)
            for route in routes
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        process: Process = scope["app"].state.process
        headers = Headers(scope=scope)
        request_id = _request_id(headers)
        method = scope["method"] if scope["method"] in METHODS else ELSEWHERE
        name = f"HTTP {method}"
        with (
            process.meters.requesting,
            process.tracing.span(name, accepted(*headers.getlist("traceparent"))) as span,
            bound(request_id=request_id, trace_id=trace_id(span.traceparent)),
        ):
            ids = {"request_id": request_id, "traceparent": span.traceparent}
            scope["state"] = {**scope.get("state", {}), **ids}
            began, answer = time.perf_counter(), _Answer(send, request_id, span.traceparent)
            try:
                await self._answered(scope, receive, answer)
            finally:
                seconds = time.perf_counter() - began
                route = self._templates.get(scope.get("endpoint"), ELSEWHERE)
                process.meters.requested(method, route, answer.status, seconds)
                span.rename(f"{name} {route}")
                span.note(status=answer.status)
                _tell(scope, method, route, answer.status, seconds)

    async def _answered(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        try:
            await self.app(scope, receive, answer)
        except ClientDisconnect:
            return  # in the middle of its body: nobody is there to be answered
        except Exception:
            log.exception("a fault of Nightjar's own")
            if answer.status != GONE:
                raise  # the answer has begun: all that is left is to cut it
            await _our_fault(scope)(scope, receive, answer)


class _Answer:
    """Sends, and remembers the status."""

    def __init__(self, send: Send, request_id: str, traceparent: str) -> None:
        self._send = send
        self._ids = [(b"x-request-id", request_id.encode()), (b"traceresponse", traceparent.encode())]
        self.status = GONE

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message["headers"], *self._ids]
        await self._send(message)


def _request_id(headers: Headers) -> str:
    """The caller's own, where it can stand in a log as it is; else a new one."""
    given = headers.get("x-request-id", "")
    return given if re.fullmatch(r"[\w.:/+=@-]{1,96}", given, re.ASCII) else random_hex(8)


def _our_fault(scope: Scope) -> Response:
    return problem_document(
        500,
        "Internal error",
        f"{scope['method']} {scope['path'][:200]} failed: a fault of Nightjar's own",
        hint="the web process's log has the traceback (logs/web.log in the data directory)",
    )


def _tell(scope: Scope, method: str, route: str, status: int, seconds: float) -> None:
    facts = {"method": method, "route": route, "status": status, "duration_s": round(seconds, 4)}
    known = {**scope.get("path_params", {}), **scope["state"]}
    facts |= {name: known[name] for name in EXTRA if name in known}
    level = logging.DEBUG if route in QUIET else logging.INFO
    log.log(level, "%s %s %d", method, route, status, extra=facts)
