"""pipeline::flush drops the draft of a program."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from functions.contract import Command, Http, Response, function
from functions.of_swarm import OfSwarm
from functions.rules.pipeline.stepping import flushed
from state.pipelines import Pipelines
from state.settings import Settings


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
async def flush(request: FlushDraft, pipelines: Pipelines, settings: Settings) -> Flushed:
    """Drop what is drafted, a confirmed draft too: the trust in drafts falls; without one nothing changes."""
    tag = request.tag_in(settings)
    while (stand := await pipelines.stand(tag)).pipeline.draft is not None:
        if await pipelines.take(tag, flushed(stand.pipeline, stand, "operator", {"why": request.reason})):
            break
    return Flushed(ok=True, reason=request.reason)
