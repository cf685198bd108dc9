"""The functions: their table, and how often each was called."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import BaseModel, ConfigDict

from functions.kernel.contract import Call, Http, Request, Response, function
from functions.kernel.schemas import prepare, schema_of
from functions.kernel.table import table
from state.presence import Tallies
from state.records import view_of


class FunctionView(Response):
    name: str
    description: str
    triggers: list[str]
    role: list[str]
    lane: str
    writes: bool
    costly: bool
    """Whether a caller may have only a few calls of such functions under way at once."""
    request: dict[str, Any]
    response: dict[str, Any]


class ListedFunctions(Response):
    functions: list[FunctionView]
    total: int


@function(
    "function::list", Http("GET", "/api/function/list"), Http("POST", "/api/function/list"), role="viewer"
)
async def list_functions(request: Request) -> ListedFunctions:
    """Every function with its triggers, role, lane and schemas."""
    await prepare(table())
    rows = _rows()
    return ListedFunctions(functions=[*rows], total=len(rows))


@cache
def _rows() -> tuple[FunctionView, ...]:
    return tuple(
        view_of(
            FunctionView,
            declared,
            name=name,
            description=declared.description,
            triggers=[str(trigger) for trigger in declared.triggers],
            role=[*declared.roles],
            request=dict(schema_of(declared.request, "request")),
            response=dict(schema_of(declared.response, "answer")),
        )
        for name, declared in table().items()
    )


class FunctionCalls(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=False, defer_build=True, from_attributes=True)

    calls: int
    errors: int
    """Calls that were refused or failed."""
    last_at: float | None
    """When the last one ended, in seconds since 1970; null where it is not known. Calls of other kinds of processes
    are told some seconds late."""


class CountedCalls(Response):
    functions: dict[str, FunctionCalls]
    """By name; only functions that were called. Counts are of the answering web process since it started, and of
    other kinds of processes since the lab was made."""


@function("function::calls", role="viewer")
async def calls(request: Request, call: Call, tallies: Tallies) -> CountedCalls:
    """Calls, refusals and failures of each function; cron::list has the next firings."""
    counted = call.invoker.counts(await tallies.all())
    return CountedCalls(
        functions={name: FunctionCalls.model_validate(each) for name, each in counted.items()}
    )
