"""Fixed paths of functions: one look into a table, before the router tries one route after another."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

Endpoint = Callable[[Request], Awaitable[Response]]


class Doors:
    """ASGI middleware; `answers` by method and path. What it does not know, the router does."""

    def __init__(self, app: ASGIApp, *, answers: Mapping[tuple[str, str], Endpoint]) -> None:
        self.app = app
        self._answers = answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._answers.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if answer is None:
            await self.app(scope, receive, send)
            return
        scope["endpoint"] = answer
        response = await answer(Request(scope, receive, send))
        await response(scope, receive, send)
