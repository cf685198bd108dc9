"""HTTP triggers: every function of the table behind its routes, with real status codes."""

from __future__ import annotations

import json
import logging
from functools import cache
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Lifespan

from functions.contract import Call, Function, Http
from functions.invoke import check_role
from functions.process.lifecycle import Process
from functions.rules.access import STRANGER
from functions.schemas import prepare
from state.errors import NightjarError
from state.settings import Settings
from triggers.dashboard.page import dashboard
from triggers.docs import docs_page
from triggers.http.access import Access
from triggers.http.answering import JSON, Answer, answered
from triggers.http.asking import asked
from triggers.http.doors import Doors, Endpoint
from triggers.http.etags import etag_of, is_held
from triggers.http.guard import Guard, added_hosts, own_hosts, url_of
from triggers.http.identity import Visitor, check_no_visit, greet, identify
from triggers.http.problems import problem_document, problem_response
from triggers.http.sessions import Session
from triggers.http.turns import Turns
from triggers.mcp.door import Mcp
from triggers.metrics import metrics
from triggers.openapi import AMONG_SCHEMAS, openapi
from triggers.sse.run_log import LOG, following
from triggers.sse.stream import events

log = logging.getLogger(__name__)


def make_app(
    functions: dict[str, Function[Any, Any]], settings: Settings, lifespan: Lifespan[Starlette]
) -> Starlette:
    """The web application; `lifespan` puts the opened Process into `app.state.process`."""
    document = cache(
        lambda: json.dumps(openapi(functions, public_reads=settings.swarm_public_reads)).encode()
    )
    page = cache(lambda: docs_page(functions))

    async def openapi_document(_: Request) -> Response:
        await prepare(functions, AMONG_SCHEMAS)
        return Response(document(), media_type=JSON)

    async def docs(_: Request) -> Response:
        await prepare(functions)
        return HTMLResponse(page(), headers=DOCS_HEADERS)

    routes: list[BaseRoute] = [
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", metrics),
        Route("/api/events", events),
        Route("/openapi.json", openapi_document),
        Route("/docs", docs),
        Route("/api/session", Session),
        *dashboard(settings),
    ]
    turns = Turns()
    routes.append(Route("/mcp", Mcp(functions, turns), methods=["POST"]))
    answers = {
        (door.method, door.path): endpoint(declared, door, turns)
        for declared in functions.values()
        for door in declared.doors
    }
    writing = {(door.method, door.path) for f in functions.values() if f.writes for door in f.doors}
    for door in functions[LOG].doors if LOG in functions else ():
        answers[door.method, door.path] = following(answers[door.method, door.path])
    # A fixed path is tried before one with a parameter: /api/report/tags before /api/{x}/tags.
    for method, path in sorted(answers, key=lambda at: (at[1].count("{"), at[1])):
        route = Route(path, answers[method, path], methods=[method])
        if (method, path) in writing and route.methods is not None:
            route.methods.discard("HEAD")  # Starlette answers HEAD by the GET, which changes something here
        routes.append(route)
    return Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[
            Middleware(Access, routes=routes),
            Middleware(Guard, own=own_hosts(settings), added=added_hosts(settings)),
            Middleware(Doors, answers={at: answer for at, answer in answers.items() if "{" not in at[1]}),
        ],
        exception_handlers={HTTPException: no_such_route},
    )


DOCS_HEADERS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}


def endpoint(declared: Function[Any, Any], door: Http, turns: Turns) -> Endpoint:
    """Answer requests at one route of one function."""

    async def answer(request: Request) -> Response:
        try:
            return await _answer(declared, door, request, turns)
        except NightjarError as problem:
            request.state.refused = type(problem).__name__
            log.debug("%s refuses: %s", declared.name, problem.detail[:200])  # it may quote the request
            return problem_response(problem)

    return answer


async def _answer(declared: Function[Any, Any], door: Http, request: Request, turns: Turns) -> Response:
    process: Process = request.app.state.process
    visitor = await _visitor(declared, request)
    request_model = await asked(declared, door, request, turns)
    call = Call(
        caller=visitor.caller,
        proof=visitor.proof,
        invoker=process.invoker,
        request_id=request.state.request_id,
        idempotency_key=request.headers.get("idempotency-key"),
        traceparent=request.state.traceparent,
        trigger="http",
        address=request.client.host if request.client else "",
        url=url_of(request.url.scheme, request.headers.get("host", "")),
    )
    answer = await answered(process, declared, request_model, call, turns)
    return _shown(declared, door, request, answer)


async def _visitor(declared: Function[Any, Any], request: Request) -> Visitor:
    """Who asks, before their body is read; a function for anyone wants to know where it says so.

    Who may not call a public function as themselves calls it as a stranger.

    Raises:
        Unauthenticated, Forbidden, TooManyRequests: they may not.
    """
    if "anyone" in declared.roles:
        return await greet(request, writes=declared.writes) if declared.knows_caller else Visitor(STRANGER)
    process: Process = request.app.state.process
    if declared.is_public and process.settings.swarm_public_reads:
        visitor = await greet(request, writes=False)
        return visitor if declared.allows(visitor.caller.role) else Visitor(STRANGER)
    if declared.writes and request.method == "GET":
        check_no_visit(request)
    visitor = await identify(request, writes=declared.writes)
    check_role(declared, visitor.caller)
    return visitor


def _shown(declared: Function[Any, Any], door: Http, request: Request, answer: Answer) -> Response:
    headers = {"Idempotent-Replayed": "true"} if answer.is_replayed else {}
    if answer.is_empty:
        return Response(status_code=204, headers=headers)
    if door.has_etag:
        headers["ETag"] = etag_of(answer.body)
        if is_held(headers["ETag"], request.headers.getlist("if-none-match")):
            return Response(status_code=304, headers=headers)
    status = 200 if declared.lane == "web" else 202
    return Response(answer.body, status_code=status, headers=headers, media_type=answer.media_type)


async def healthz(_: Request) -> Response:
    """This process is alive."""
    return JSONResponse({"ok": True})


async def readyz(request: Request) -> Response:
    """This process can answer: Redis is reachable, the scripts are loaded, the schema is ours."""
    process: Process = request.app.state.process
    try:
        await process.lab.check()
    except NightjarError as problem:
        return problem_response(problem)
    return JSONResponse({"ok": True, "lab": process.settings.lab, "redis": await process.lab.facts()})


async def no_such_route(request: Request, problem: Exception) -> Response:
    """Starlette's own refusals as problem documents."""
    status = problem.status_code if isinstance(problem, HTTPException) else 500
    hints = {
        404: "GET /docs lists every route",
        405: "GET /docs lists every route with its method",
    }
    titles = {404: "Not found", 405: "Method not allowed"}
    return problem_document(
        status,
        titles.get(status, "Refused"),
        f"there is no {request.method} {request.url.path[:200]}",
        hint=hints.get(status),
        headers=dict(getattr(problem, "headers", None) or {}),
    )
