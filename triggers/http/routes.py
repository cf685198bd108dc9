"""The web application: every function of the table behind its routes, and the routes that are no functions.

The live page at `/` is a shell rendered here, with static modules. It reads everything else from the functions.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from functools import cache
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Lifespan, Scope

from functions.kernel.contract import Function
from functions.kernel.schemas import prepare
from state.events import CATALOGUE
from state.program import PROGRAM
from state.settings import Settings
from triggers.http.answering import JSON, endpoint
from triggers.http.bodies import LoopTurns
from triggers.http.exchange import Endpoint, Exchange
from triggers.http.front import Front
from triggers.http.hosts import HostCheck
from triggers.http.identity import SESSION
from triggers.http.problems import problem_document
from triggers.mcp_tools import Mcp
from triggers.metrics import metrics
from triggers.openapi import AMONG_SCHEMAS, docs_page, openapi
from triggers.run_log import LOG, following
from triggers.sse import events

DOCS_HEADERS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}


def make_app(
    functions: dict[str, Function[Any, Any]], settings: Settings, lifespan: Lifespan[Starlette]
) -> Starlette:
    """The web application; `lifespan` puts the opened Process into `app.state.process`."""
    document = cache(
        lambda: json.dumps(openapi(functions, public_reads=settings.swarm_public_reads)).encode()
    )
    page = cache(lambda: docs_page(functions))

    async def openapi_document(_: Exchange) -> Response:
        await prepare(functions, AMONG_SCHEMAS)
        return Response(document(), media_type=JSON)

    async def docs(_: Exchange) -> Response:
        await prepare(functions)
        return HTMLResponse(page(), headers=DOCS_HEADERS)

    turns = LoopTurns()
    endpoints: dict[tuple[str, str], Endpoint] = {
        ("GET", "/healthz"): healthz,
        ("GET", "/readyz"): readyz,
        ("GET", "/metrics"): metrics,
        ("GET", "/api/events"): events,
        ("GET", "/openapi.json"): openapi_document,
        ("GET", "/docs"): docs,
        **{(method, "/api/session"): answer for method, answer in SESSION.items()},
    }
    for declared in functions.values():
        for door in declared.doors:
            answer = endpoint(declared, door, turns)
            endpoints[door.method, door.path] = following(answer) if declared.name == LOG else answer
    writing = {(door.method, door.path) for f in functions.values() if f.writes for door in f.doors}
    routes: list[BaseRoute] = [*dashboard(settings), Route("/mcp", Mcp(functions, turns), methods=["POST"])]
    by_path: dict[str, dict[str, Endpoint]] = {}
    for (method, path), answer in endpoints.items():
        by_path.setdefault(path, {})[method] = answer
    # A fixed path is tried before one with a parameter: /api/report/tags before /api/{x}/tags.
    for path in sorted(by_path, key=lambda path: (path.count("{"), path)):
        route = Route(path, _by_router(by_path[path]), methods=[*by_path[path]])
        if ("GET", path) in writing and route.methods is not None:
            route.methods.discard("HEAD")  # Starlette answers HEAD by the GET, which changes something here
        routes.append(route)
    held = {door.path for f in functions.values() if f.held_for for door in f.doors}

    def front(app: ASGIApp) -> Front:
        return Front(
            app,
            endpoints={at: answer for at, answer in endpoints.items() if "{" not in at[1]},
            routes=routes,
            waiting={"/api/events", "/mcp", *held},
            hosts=HostCheck(settings),
        )

    return WebApp(routes=routes, lifespan=lifespan, front=front)


class WebApp(Starlette):
    """Starlette with `Front` in place of its middleware for errors: `Front` answers every fault."""

    def __init__(
        self, *, routes: list[BaseRoute], lifespan: Lifespan[Starlette], front: Callable[[ASGIApp], Front]
    ) -> None:
        super().__init__(routes=routes, lifespan=lifespan)
        self._front = front

    def build_middleware_stack(self) -> ASGIApp:
        return self._front(ExceptionMiddleware(self.router, {HTTPException: no_such_route}))


def _by_router(answers: Mapping[str, Endpoint]) -> Any:
    """These endpoints by method for Starlette's router, which makes a request of its own. HEAD is answered as GET."""

    async def routed(request: Request) -> Response:
        return await answers["GET" if request.method == "HEAD" else request.method](Exchange.of(request))

    return routed


async def healthz(_: Exchange) -> Response:
    """This process is alive."""
    return JSONResponse({"ok": True})


async def readyz(exchange: Exchange) -> Response:
    """This process can answer: Redis is reachable, the scripts are loaded, the schema is ours."""
    lab = exchange.process.lab
    await lab.check()
    return JSONResponse({"ok": True, "lab": exchange.process.settings.lab, "redis": await lab.facts()})


async def no_such_route(request: Request, problem: Exception) -> Response:
    """Starlette's own refusals as problem documents."""
    status = problem.status_code if isinstance(problem, HTTPException) else 500
    hints = {404: "GET /docs lists every route", 405: "GET /docs lists every route with its method"}
    titles = {404: "Not found", 405: "Method not allowed"}
    return problem_document(
        status,
        titles.get(status, "Refused"),
        f"there is no {request.method} {request.url.path[:200]}",
        hint=hints.get(status),
        headers=dict(getattr(problem, "headers", None) or {}),
    )


STATIC = Path(__file__).parents[1] / "dashboard" / "static"
POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "connect-src": "'self'",
    "img-src": "'self' blob:",  # the plot is fetched, so that a refusal of it can be shown
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
    "require-trusted-types-for": "'script'",  # no text becomes markup, not even by a mistake of ours
    "trusted-types": "default",  # lets the chart library empty an element, and nothing else (static/charts.js)
}
HEADERS = {
    "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in POLICY.items()),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # ask again each time: an ETag makes that cheap, a restart never mixes versions
}


class PageFiles(StaticFiles):
    """Static files with the page's headers; Starlette adds the ETag and answers 304."""

    def file_response(
        self,
        full_path: str | os.PathLike[str],
        stat_result: os.stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers.update(HEADERS)
        return response


def dashboard(settings: Settings) -> list[BaseRoute]:
    shell = Template((STATIC / "index.html").read_text()).substitute(
        lab=escape(settings.lab), program=escape(PROGRAM), types=escape(" ".join(sorted(CATALOGUE)))
    )

    async def page(_: Request) -> Response:
        return HTMLResponse(shell, headers=HEADERS)

    return [Route("/", page), Mount("/static", PageFiles(directory=STATIC))]
