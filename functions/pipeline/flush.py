"""pipeline::flush drops the draft of a programme."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from functions.contract import Command, Http, Response, function
from functions.of_swarm import OfSwarm


class FlushDraft(OfSwarm, Command):
    reason: Annotated[str, Field(max_length=500)] = Field(
        "an operator flushed it", description="why", examples=["the plan has changed"]
    )


class Flushed(Response):
    ok: bool
    reason: str


@function(
    "pipeline::flush",
    Http("POST", "/pipeline/flush", query=("reason", "tag")),
    role="operator",
    writes=True,
    keeps_answer=False,
)
async def flush(request: FlushDraft) -> Flushed:
    """Drop what is drafted; there is nothing to drop yet."""
    return Flushed(ok=True, reason=request.reason)
