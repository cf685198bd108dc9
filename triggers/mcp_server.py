"""The SDK's server over the function table: lists the tools, calls the function that is meant."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Collection, Mapping
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError
from pydantic_core import from_json, to_json
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from functions.kernel.contract import Call, Function
from functions.kernel.invoke import check_role
from functions.kernel.process.redaction import without_tokens
from functions.kernel.schemas import schema_of
from functions.kernel.table import fault_of
from functions.kernel.validation import NAMED, invalid
from state.errors import NightjarError
from state.program import VERSION
from triggers.http.answering import answered
from triggers.http.bodies import LoopTurns, too_large
from triggers.http.exchange import Exchange
from triggers.http.identity import Visitor
from triggers.mcp_tools import WHAT, Functions, Tool, tools_of

ROUTE = re.compile(r"\b(GET|POST) (/api/[\w./:{}-]*[\w}])")
SENTENCES = ("next", "hint")
"""Fields of an answer with instructions."""
MOST_FAULTS = 20


class Wording:
    """Says things to an agent that has these tools."""

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self._routes = [
            (door.method, re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(door.path))), _named(tool, what))
            for tool in tools.values()
            for what, declared in tool.choices.items()
            for door in declared.doors
        ]

    def with_tools(self, text: str) -> str:
        """The text, with tools for the routes that they stand for."""
        return ROUTE.sub(self._tool, text)

    def answer(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """A function's answer, with tools in its sentences."""
        sentences = {
            name: self.with_tools(text) for name in SENTENCES if isinstance(text := answer.get(name), str)
        }
        return {**answer, **sentences}

    def refusal(self, problem: NightjarError) -> str:
        """The problem and its remedy in one text: some clients show agents nothing else."""
        parts = [f"{problem.title}: {problem.detail}"]
        if problem.hint is not None:
            parts.append(f"Hint: {self.with_tools(problem.hint)}")
        parts += [f"- {fault}" for fault in _faults(problem)]
        if problem.retry_after is not None:
            parts.append(f"Try again in {problem.retry_after:g} s.")
        return "\n".join(parts)

    def _tool(self, found: re.Match[str]) -> str:
        method, path = found.groups()
        return next(
            (name for of, route, name in self._routes if of == method and route.fullmatch(path)), found[0]
        )


def _faults(problem: NightjarError) -> list[str]:
    """Problems of the fields that the detail does not name."""
    errors = problem.fields.get("errors")
    if not isinstance(errors, list) or len(errors) <= NAMED:
        return []
    return [f"{error['field']}: {error['problem']}" for error in errors[NAMED:MOST_FAULTS]]


def in_short(answer: Mapping[str, Any], fields: Collection[str]) -> dict[str, Any]:
    """An answer by these fields (none: by all), without null, and without a hint that `next` repeats."""
    is_repeated = answer.get("hint") and answer["hint"] in (answer.get("next") or "")
    return {
        name: _said(value)
        for name, value in answer.items()
        if value is not None and name in (fields or answer) and not (name == "hint" and is_repeated)
    }


def _said(value: Any) -> Any:
    match value:
        case dict():
            return {name: _said(of) for name, of in value.items() if of is not None}
        case list():
            return [_said(of) for of in value]
    return value


def _named(tool: Tool, what: str) -> str:
    return f"the tool {tool.name}" if what == tool.usual else f"the tool {tool.name} with {WHAT}={what}"


log = logging.getLogger(__name__)

Context = ServerRequestContext[Any, Request]

FIRST_STRUCTURED = "2025-06-18"
"""Clients of earlier versions of the protocol read texts only."""
INSTRUCTIONS = (
    "Nightjar trains what you submit, decides keep or discard, and remembers every try. Begin with `brief`, also"
    " after your context was lost. Then repeat: `suggest`; go to base_commit_sha, change one thing in train.py,"
    " commit; `submit` with the whole patch as `diff`; `wait` until it is finished; go on from your commit if the"
    " action is keep_commit, else reset to base_commit_sha. Every answer says what is `next`."
)


class Tools:
    """Answers requests of MCP clients."""

    def __init__(self, functions: Functions, turns: LoopTurns, body_limit: int) -> None:
        self._turns = turns
        self._body_limit = body_limit
        self._tools = tools_of(functions)
        self._words = Wording(self._tools)
        self._server: Server[Any] = Server(
            "nightjar",
            version=VERSION,
            instructions=INSTRUCTIONS,
            get_tool_input_schema=lambda _: None,  # no field of ours travels in a header
            on_list_tools=self._list,
            on_call_tool=self._call,
        )

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; nothing of it outlives the answer."""
        manager = StreamableHTTPSessionManager(
            self._server, stateless=True, json_response=True, max_request_body_size=self._body_limit
        )
        async with manager.run():
            await manager.handle_request(scope, receive, send)

    async def _list(self, context: Context, _: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        role = _visitor(context).caller.role
        return types.ListToolsResult(
            tools=[
                _shown(tool)
                for tool in self._tools.values()
                if any(declared.allows(role) for declared in tool.choices.values())
            ]
        )

    async def _call(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        """What the function answers; its refusals are errors of the tool."""
        tool = self._tools.get(params.name)
        if tool is None:
            known = ", ".join(self._tools)
            raise MCPError(types.INVALID_PARAMS, f"there is no tool {params.name[:100]!r}: there are {known}")
        try:
            return await self._answered(context, tool, params.arguments or {})
        except NightjarError as problem:
            log.debug("%s refuses: %s", tool.name, problem.detail[:200])  # it may quote the request
            return types.CallToolResult(
                content=[_text(without_tokens(self._words.refusal(problem)))], is_error=True
            )
        except Exception as problem:
            log.exception("%s failed", tool.name)
            raise MCPError(
                types.INTERNAL_ERROR, f"{tool.name} failed: {fault_of(tool.choices)}, see web.log"
            ) from problem

    async def _answered(
        self, context: Context, tool: Tool, arguments: Mapping[str, Any]
    ) -> types.CallToolResult:
        request, visitor = _request(context), _visitor(context)
        exchange = Exchange.of(request)
        declared, fields = tool.chosen(arguments)
        check_role(declared, visitor.caller)
        if request.state.body_size > (limit := max(door.body_limit for door in declared.doors)):
            raise too_large(limit)
        most_s, began = _shortened(declared, fields), time.monotonic()
        try:
            asked = await self._turns.do(
                lambda: declared.request.model_validate(fields, strict=True),
                lambda _: request.state.body_size,
            )
        except ValidationError as problem:
            refusal = invalid(problem)
            refusal.hint = f"correct these fields: the tool {tool.name} shows what each of them may be"
            raise refusal from problem
        call = Call(
            caller=visitor.caller,
            proof=visitor.proof,
            invoker=exchange.process.invoker,
            request_id=exchange.request_id,
            traceparent=exchange.traceparent,
            trigger="mcp",
        )
        answer = await answered(exchange.process, declared, asked, call, self._turns)
        of_agents = getattr(declared.response, "FOR_AGENTS", ())  # an answer may be any model
        shown = self._words.answer(in_short(from_json(answer.body), of_agents))
        if most_s is not None and time.monotonic() - began >= most_s and "next" in shown:
            shown["next"] = (
                f"No call waits longer than {most_s:g} s: repeat it to go on waiting. {shown['next']}"
            )
        structured = shown if context.protocol_version >= FIRST_STRUCTURED else None
        return types.CallToolResult(content=[_text(to_json(shown).decode())], structured_content=structured)


def _request(context: Context) -> Request:
    assert context.request is not None  # every request comes over HTTP
    return context.request


def _visitor(context: Context) -> Visitor:
    visitor: Visitor = _request(context).state.visitor
    return visitor


def _shown(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        description=tool.text,
        input_schema=dict(tool.schema),
        annotations=types.ToolAnnotations(
            read_only_hint=not tool.writes,
            destructive_hint=tool.ends if tool.writes else None,
            open_world_hint=False,
        ),
    )


def _text(text: str) -> types.TextContent:
    return types.TextContent(type="text", text=text)


def _shortened(declared: Function[Any, Any], fields: dict[str, Any]) -> float | None:
    """Let a call wait no longer than its function lets it; answers for how long, where it asked for more."""
    if declared.held_for is None:
        return None
    most_s: float = schema_of(declared.request, "request")["properties"][declared.held_for]["maximum"]
    wished = fields.get(declared.held_for)
    if not isinstance(wished, int | float) or isinstance(wished, bool) or wished <= most_s:
        return None
    fields[declared.held_for] = most_s
    return most_s
