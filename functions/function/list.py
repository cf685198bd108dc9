"""function::list prints the function table."""

from __future__ import annotations

import builtins
from functools import cache
from typing import Any

from functions.contract import Http, Request, Response, function
from functions.schemas import prepare, schema_of
from functions.table import table


class ListFunctions(Request):
    """Nothing to ask for."""


class FunctionView(Response):
    name: str
    description: str
    triggers: builtins.list[str]
    role: builtins.list[str]
    lane: str
    writes: bool
    costly: bool
    """Whether a caller may have only a few calls of such functions under way at once."""
    request: dict[str, Any]
    response: dict[str, Any]


class ListedFunctions(Response):
    functions: builtins.list[FunctionView]
    total: int


@function(
    "function::list", Http("GET", "/api/function/list"), Http("POST", "/api/function/list"), role="viewer"
)
async def list(request: ListFunctions) -> ListedFunctions:
    """Every function with its triggers, role, lane and schemas."""
    await prepare(table())
    rows = _rows()
    return ListedFunctions(functions=[*rows], total=len(rows))


@cache
def _rows() -> tuple[FunctionView, ...]:
    return tuple(
        FunctionView(
            name=name,
            description=declared.description,
            triggers=[str(trigger) for trigger in declared.triggers],
            role=[*declared.roles],
            lane=declared.lane,
            writes=declared.writes,
            costly=declared.costly,
            request=dict(schema_of(declared.request, "request")),
            response=dict(schema_of(declared.response, "answer")),
        )
        for name, declared in table().items()
    )
