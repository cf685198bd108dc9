"""The functions that the clock fires, from the function table."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from functions.contract import Cron, Every
from functions.table import table
from state.errors import NotFound

Name = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z]+::[a-z_]+$", max_length=100),
    Field(description="a function that the clock fires: cron::list shows them", examples=["pool::sweep"]),
]
"""A function's name, `noun::verb`."""


def timed() -> dict[str, Every | Cron]:
    """The clock trigger of each function that has one, by name."""
    return {name: found.clock for name, found in table().items() if found.clock is not None}


def trigger_of(function: str) -> Every | Cron:
    """The clock trigger of a function.

    Raises:
        NotFound: it has none.
    """
    found = timed()
    if function not in found:
        raise NotFound(f"the clock does not fire {function!r}", hint=f"it fires {', '.join(found)}")
    return found[function]
