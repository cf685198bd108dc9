"""The route /mcp: lets in whom the HTTP door lets in, reads the body as it does, and hands both to the SDK's server.

There are no sessions: any web process answers any request. The SDK takes a second to import, so it is imported with
the first request.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from state.errors import NightjarError
from triggers.http.answering import JSON
from triggers.http.bodies import LoopTurns, parsed, read_body
from triggers.http.exchange import Exchange
from triggers.http.identity import identify
from triggers.http.problems import problem_response
from triggers.mcp.tools import Functions

if TYPE_CHECKING:
    from triggers.mcp.server import Tools

REFUSED = -32000
"""JSON-RPC's first code for what a server refuses."""


class Mcp:
    """ASGI application of the route."""

    def __init__(self, functions: Functions, turns: LoopTurns) -> None:
        self._functions = functions
        self._turns = turns
        self._body_limit = max(door.body_limit for declared in functions.values() for door in declared.doors)
        self._importing = asyncio.Lock()
        self._tools: Tools | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange: Exchange = scope["exchange"]
        try:
            visitor = await identify(exchange, writes=True)
            body = await read_body(exchange, self._body_limit)
            await self._turns.do(lambda: parsed(body), lambda _: len(body))
        except NightjarError as problem:
            exchange.refused = type(problem).__name__
            await _refusal(problem)(scope, receive, send)
            return
        scope["state"] = {**scope.get("state", {}), "visitor": visitor, "body_size": len(body)}
        tools = await self._served()
        await tools.answer(scope, _again(body, receive), send)

    async def _served(self) -> Tools:
        async with self._importing:
            if self._tools is None:
                self._tools = await asyncio.to_thread(_tools, self._functions, self._turns, self._body_limit)
            return self._tools


def _tools(functions: Functions, turns: LoopTurns, body_limit: int) -> Tools:
    from triggers.mcp.server import Tools

    return Tools(functions, turns, body_limit)


def _refusal(problem: NightjarError) -> Response:
    """The HTTP door's refusal as an error of JSON-RPC, whose message clients show."""
    refusal = problem_response(problem)
    document = json.loads(bytes(refusal.body))
    hint = f" ({document['hint']})" if "hint" in document else ""
    error = {"code": REFUSED, "message": f"{document['title']}: {document['detail']}{hint}", "data": document}
    headers = {name: value for name, value in refusal.headers.items() if not name.startswith("content-")}
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error})
    return Response(body, status_code=refusal.status_code, headers=headers, media_type=JSON)


def _again(body: bytes, receive: Receive) -> Receive:
    """Receives a body that was read already once more."""
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def give() -> Message:
        return left.pop() if left else await receive()

    return give
