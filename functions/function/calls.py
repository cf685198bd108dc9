"""function::calls counts the calls of each function."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from functions.contract import Call, Request, Response, function
from state.tallies import Tallies


class CountCalls(Request):
    """Nothing to ask for."""


class FunctionCalls(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=False, defer_build=True, from_attributes=True)

    calls: int
    errors: int
    """Calls that were refused or failed."""
    last_at: float | None
    """When the answering web process ran the last one, in seconds since 1970; null: not since it started."""


class CountedCalls(Response):
    functions: dict[str, FunctionCalls]
    """By name; only functions that were called. Counts are of the answering web process since it started, and of
    other kinds of processes since the lab was made."""


@function("function::calls", role="viewer")
async def calls(request: CountCalls, call: Call, tallies: Tallies) -> CountedCalls:
    """Calls, refusals and failures of each function; cron::list has the next firings."""
    counted = call.invoker.counts(await tallies.all())
    return CountedCalls(
        functions={name: FunctionCalls.model_validate(each) for name, each in counted.items()}
    )
