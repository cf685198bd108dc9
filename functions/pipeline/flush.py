"""pipeline::flush drops the draft of a program before its batch confirms it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from functions.contract import Command, Http, Response, function
from functions.of_swarm import OfSwarm
from functions.rules.pipeline.stepping import flushed, open_draft
from state.pipeline_facts import PipelineState, PipelineStep
from state.pipelines import Pipelines
from state.settings import Settings


class FlushDraft(OfSwarm, Command):
    reason: Annotated[str, Field(max_length=500)] = Field(
        "an operator flushed it", description="why", examples=["the plan has changed"]
    )


class Flushed(Response):
    ok: bool
    reason: str
    flushed: str | None
    """The dropped draft; null: none was open. A confirmed draft is not dropped: it becomes the program."""


@function(
    "pipeline::flush",
    Http("POST", "/pipeline/flush", query=("reason", "tag")),
    role="operator",
    writes=True,
    keeps_answer=False,
)
async def flush(request: FlushDraft, pipelines: Pipelines, settings: Settings) -> Flushed:
    """Drop the open draft and lower the trust in drafts. Without an open draft nothing changes."""

    async def flush_open(stand: PipelineState) -> PipelineStep | None:
        why = {"why": request.reason}
        return flushed(stand.pipeline, stand, "operator", why) if open_draft(stand.pipeline) else None

    step = await pipelines.take(request.tag_in(settings), flush_open)
    return Flushed(ok=True, reason=request.reason, flushed=None if step is None else step.data["spec_id"])
