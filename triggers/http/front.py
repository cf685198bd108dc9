"""The layer around every HTTP request: ids, trace, host check, routing, metrics, the log line, answers to errors.

A request is logged at debug. One that is refused or slow is logged at info, one that fails at warning or error. Lines
hold neither bodies nor queries, and a route instead of a path.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from functions.kernel.process.logs import EXTRA, bound
from functions.kernel.table import fault_of
from state.errors import NightjarError
from state.traceparent import accepted
from triggers.http.exchange import GONE, Endpoint, Exchange
from triggers.http.hosts import HostCheck
from triggers.http.problems import problem_document, problem_response

log = logging.getLogger(__name__)

SLOW_S = 1.0
"""Seconds from which an answered request is logged at info."""
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
NO_ROUTE = "(none)"
"""Label of a request without a route. Its path is not shown: callers would choose labels and lines."""


class Front:
    """ASGI middleware around Starlette's router.

    `endpoints` are found by method and path in one look-up; the router tries one route after another for the rest.
    Requests to `waiting` routes may take long and are not logged as slow.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        endpoints: Mapping[tuple[str, str], Endpoint],
        routes: Sequence[BaseRoute],
        waiting: Collection[str],
        hosts: HostCheck,
    ) -> None:
        self.app = app
        self._endpoints = endpoints
        self._waiting = waiting
        self._hosts = hosts
        self._templates = {
            getattr(route, "endpoint", None) or getattr(route, "app", None): getattr(route, "path", NO_ROUTE)
            for route in routes
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = Exchange(scope, receive, send)
        meters = exchange.process.meters
        method = scope["method"] if scope["method"] in METHODS else NO_ROUTE
        name, parent = f"HTTP {method}", accepted(*exchange.header_lines("traceparent"))
        with exchange.process.tracing.span(name, parent) as span, bound(request_id=exchange.request_id):
            exchange.traceparent = span.traceparent
            meters.requests_in_flight += 1
            began = time.perf_counter()
            try:
                await self._answer(exchange)
            finally:
                del scope["exchange"]  # each names the other: both would wait for a look for garbage
                seconds = time.perf_counter() - began
                meters.requests_in_flight -= 1
                route = exchange.route or self._templates.get(scope.get("endpoint"), NO_ROUTE)
                meters.requested(method, route, exchange.status, seconds)
                span.rename(f"{name} {route}")
                span.note(status=exchange.status)
                if log.isEnabledFor(level := self._level(exchange, route, seconds)):
                    _log(level, exchange, method, route, seconds)

    async def _answer(self, exchange: Exchange) -> None:
        scope, receive, send = exchange.scope, exchange.receive, exchange.reply
        try:
            self._hosts.check(exchange)
            endpoint = self._endpoints.get((scope["method"], scope["path"]))
            if endpoint is None:
                await self.app(scope, receive, send)
            else:
                exchange.route = scope["path"]
                await (await endpoint(exchange))(scope, receive, send)
        except ClientDisconnect:
            return  # in the middle of its body: nobody is there to be answered
        except Exception as problem:
            if exchange.status != GONE:
                exchange.fault = problem
                raise  # the answer has begun: all that is left is to cut it
            await _problem(exchange, problem)(scope, receive, send)

    def _level(self, exchange: Exchange, route: str, seconds: float) -> int:
        if exchange.fault is not None:
            return logging.ERROR
        if exchange.status >= 500:
            return logging.WARNING
        is_slow = seconds >= SLOW_S and route not in self._waiting
        return logging.INFO if exchange.status >= 400 or is_slow else logging.DEBUG


def _problem(exchange: Exchange, problem: Exception) -> Response:
    if isinstance(problem, NightjarError):
        exchange.refused = type(problem).__name__
        log.debug("refused: %s", problem.detail[:200])  # it may quote the request
        return problem_response(problem)
    exchange.fault = problem
    return problem_document(
        500,
        "Internal error",
        f"{exchange.method} {exchange.scope['path'][:200]} failed: {fault_of([exchange.function])}",
        hint="the web process's log has the traceback (logs/web.log in the data directory)",
    )


def _log(level: int, exchange: Exchange, method: str, route: str, seconds: float) -> None:
    facts = {"method": method, "route": route, "status": exchange.status, "duration_s": round(seconds, 4)}
    known = {**exchange.path_params, "refused": exchange.refused}
    facts |= {name: known[name] for name in EXTRA if known.get(name) is not None}
    log.log(level, "%s %s %d", method, route, exchange.status, extra=facts, exc_info=exchange.fault)
