"""The tools: the functions that each of them calls, and its description for agents; and the route /mcp.

Names, texts, fields, roles and refusals are the function table's. A tool of several functions takes `what`, which
says which one, and the fields of all of them. The route lets in whom the HTTP door lets in, reads the body as it
does, and hands both to the SDK's server. There are no sessions: any web process answers any request. The SDK takes a
second to import, so it is imported with the first request.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from functions.kernel.contract import Function
from functions.kernel.schemas import schema_of
from state.errors import Invalid, NightjarError
from triggers.http.answering import JSON
from triggers.http.bodies import LoopTurns, parsed, read_body
from triggers.http.exchange import Exchange
from triggers.http.identity import identify
from triggers.http.problems import problem_response

if TYPE_CHECKING:
    from triggers.mcp_server import Tools


Functions = Mapping[str, Function[Any, Any]]
Schema = Mapping[str, Any]

WHAT = "what"
NAMES: Mapping[str, Mapping[str, str]] = {
    "brief": {"brief": "report::brief", "setup": "experiment::setup"},
    "suggest": {
        "direction": "search::suggest_direction",
        "select": "trace::select",
        "release": "trace::release",
    },
    "submit": {"train": "experiment::submit", "register": "experiment::register"},
    "wait": {"wait": "experiment::wait"},
    "report": {"complete": "experiment::complete", "crash": "experiment::crash"},
    "query": {
        "best": "experiment::best",
        "history": "experiment::history",
        "near_misses": "experiment::near_misses",
        "experiment": "experiment::get",
    },
    "diff": {"diff": "report::diff"},
    "stop": {"stop": "experiment::stop"},
}
"""Functions by tool and by `what`; the first one is the default."""
NULL = {"type": "null"}
TOLD_BY_REFUSALS = frozenset(
    {
        *(
            "examples",
            "pattern",
            "minLength",
            "maxLength",
            "minItems",
            "maxItems",
            "maxProperties",
            "propertyNames",
        ),
        *("minimum", "maximum", "exclusiveMinimum"),
    }
)
"""Words of JSON Schema that only a wrong request needs: its refusal says the same."""
FOR_OTHERS = ("agents leave it out", "operators only")
"""Words in the description of a field that no agent sends."""
ENDS = frozenset({"experiment::stop"})
"""Functions for which a client may ask its user first: a stopped run is lost."""


@dataclass(frozen=True)
class Tool:
    name: str
    choices: Functions
    """By `what`; of a tool of one function, that one."""
    schema: Schema = field(repr=False)

    @property
    def text(self) -> str:
        """Description of its function; with several, one line for each with its required fields."""
        if len(self.choices) == 1:
            return self.first.description
        return "\n".join(
            f"{WHAT}={what}: {declared.description}{_needs(declared, self.schema['required'])}"
            for what, declared in self.choices.items()
        )

    @property
    def usual(self) -> str:
        """The default of `what`."""
        return next(iter(self.choices))

    @property
    def first(self) -> Function[Any, Any]:
        return self.choices[self.usual]

    @property
    def writes(self) -> bool:
        return any(declared.writes for declared in self.choices.values())

    @property
    def ends(self) -> bool:
        return any(declared.name in ENDS for declared in self.choices.values())

    def chosen(self, arguments: Mapping[str, Any]) -> tuple[Function[Any, Any], dict[str, Any]]:
        """The function that is meant, and its request. Raises Invalid: `what` names none."""
        if len(self.choices) == 1:
            return self.first, dict(arguments)
        fields = {name: value for name, value in arguments.items() if name != WHAT}
        what = arguments.get(WHAT, self.usual)
        declared = self.choices.get(what) if isinstance(what, str) else None
        if declared is None:
            raise Invalid(
                f"{WHAT} is none of {', '.join(self.choices)}", hint=f"send one of them as {WHAT!r}"
            )
        return declared, fields


def tools_of(functions: Functions) -> Mapping[str, Tool]:
    tools = {}
    for name, named in NAMES.items():
        choices = {what: functions[function] for what, function in named.items()}
        tools[name] = Tool(name, choices, _schema(choices))
    for name, declared in functions.items():
        if declared.mcp:
            one = {name: declared}
            tools[name.replace("::", "_")] = Tool(name.replace("::", "_"), one, _schema(one))
    return tools


def _needs(declared: Function[Any, Any], by_all: Sequence[str]) -> str:
    required = schema_of(declared.request, "request").get("required", [])
    own = [name for name in required if name not in by_all]
    return f" Needs {', '.join(own)}." if own else ""


def _schema(choices: Functions) -> Schema:
    """The fields of all of these functions as one object: clients take no alternatives at its top."""
    schemas = {what: plain(schema_of(declared.request, "request")) for what, declared in choices.items()}
    if len(schemas) == 1:
        return next(iter(schemas.values()))
    what = {"type": "string", "enum": list(choices), "default": next(iter(choices))}
    names = dict.fromkeys(name for schema in schemas.values() for name in schema["properties"])
    defs = {name: found for schema in schemas.values() for name, found in schema.get("$defs", {}).items()}
    return {
        "type": "object",
        "properties": {WHAT: what, **{name: _property(name, schemas) for name in names}},
        "required": [name for name in names if all(name in s.get("required", []) for s in schemas.values())],
        **({"$defs": defs} if defs else {}),
    }


def plain(schema: Schema) -> Schema:
    """A schema as a language model needs it: without null, examples and limits. Refusals tell the limits.

    Fields that agents leave out are not shown. They are taken all the same.
    """
    given = [of for of in schema.get("anyOf", []) if of != NULL]
    whole = {**given[0], **schema} if len(given) == 1 else {**schema}
    shown: dict[str, Any] = {}
    for name, of in whole.items():
        match name:
            case "properties" | "$defs":
                shown[name] = {inner: plain(s) for inner, s in of.items() if not _is_for_others(s)}
            case "items":
                shown[name] = {inner: said for inner, said in plain(of).items() if inner != "description"}
            case "additionalProperties" if isinstance(of, Mapping):
                shown[name] = plain(of)
            case "anyOf" if len(given) > 1:
                shown[name] = [plain(s) for s in given]
            case "default" if of and not isinstance(of, Mapping):  # 0 and false go without saying
                shown[name] = of
            case "anyOf" | "default" | "additionalProperties":
                pass
            case _ if name not in TOLD_BY_REFUSALS:
                shown[name] = of
    return shown


def _is_for_others(schema: Schema) -> bool:
    return any(words in schema.get("description", "") for words in FOR_OTHERS)


def _property(name: str, schemas: Mapping[str, Schema]) -> Schema:
    """A field of several functions: their common schema, else the first one's with the description of each."""
    found = {what: s["properties"][name] for what, s in schemas.items() if name in s["properties"]}
    first, *others = found.values()
    is_one = len(found) == len(schemas) and all(other == first for other in others)
    return first if is_one else _for(found)


def _for(found: Mapping[str, Schema]) -> Schema:
    """A field of these functions, with the description of each."""
    first, *others = found.values()
    whats: dict[str, list[str]] = {}
    for what, schema in found.items():
        whats.setdefault(schema.get("description", ""), []).append(what)
    description = "; ".join(f"{', '.join(of)}: {text}".removesuffix(": ") for text, of in whats.items())
    shown = {**first, "description": description}
    if any(schema.get("default") != first.get("default") for schema in others):
        del shown["default"]
    return shown


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
    from triggers.mcp_server import Tools

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
