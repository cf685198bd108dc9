"""function::list prints the function table."""

from __future__ import annotations

import builtins
from typing import Any

from functions.contract import Http, Request, Response, function
from functions.table import table


class Ask(Request):
    """Nothing to ask for."""


class Row(Response):
    name: str
    description: str
    triggers: builtins.list[str]
    role: builtins.list[str]
    lane: str
    writes: bool
    request: dict[str, Any]
    response: dict[str, Any]


class Listed(Response):
    functions: builtins.list[Row]
    total: int


@function(
    "function::list", Http("GET", "/api/function/list"), Http("POST", "/api/function/list"), role="viewer"
)
async def list(request: Ask) -> Listed:
    """Every function with its triggers, role, lane and schemas."""
    rows = [
        Row(
            name=name,
            description=declared.description,
            triggers=[str(trigger) for trigger in declared.triggers],
            role=[*declared.roles],
            lane=declared.lane,
            writes=declared.writes,
            request=declared.request.model_json_schema(),
            response=declared.response.model_json_schema(),
        )
        for name, declared in table().items()
    ]
    return Listed(functions=rows, total=len(rows))
