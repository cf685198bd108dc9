"""pipeline::draft writes the draft of a swarm's next program."""

from __future__ import annotations

import asyncio
from typing import Literal

from pydantic import Field

from functions.authoring import authored
from functions.contract import CATEGORIES, Call, Command, On, Response, function
from functions.lanes import Author
from functions.pipeline._stores import Drafting
from functions.rules.pipeline.stepping import foreseen, written
from functions.rules.program.findings import findings_of
from state.ids import Tag as TagName
from state.pipeline_facts import PipelineState, PipelineStep
from state.program_facts import FindingsFacts, ProgramVersion
from state.records import Draft

FUNCTION = "pipeline::draft"
TASK = (
    "Write the part of program.md that changes with the evidence, for the batch of runs that comes next. The strategy"
    " and the leading claim given are what the running batch is predicted to decide: write as if it had. Its readers"
    " are workers that train what they are told to; they act on it at once. Say what the findings support and no"
    " more. Do not repeat the findings' tables."
)


class WriteDraft(Command):
    tag: TagName
    number: int = Field(ge=1, description="number of the draft, from its event", examples=[3])


class DraftAsked(Response):
    tag: str
    became: Literal["asked", "written", "nothing"]
    """asked: a language model writes it. written: by the templates. nothing: the draft is no longer wanted."""


class WrittenDraft(Response):
    tag: str
    author: str | None
    """Who wrote it; null: it was already written or dropped."""


@function("pipeline::draft", role="operator", writes=True, keeps_answer=False)
async def accept(request: WriteDraft, stores: Drafting) -> DraftAsked:
    """Ask the lane `pi`; without a language model write the draft by the templates."""
    if await stores.lane.asked(FUNCTION, request.tag, request.number):
        return DraftAsked(tag=request.tag, became="asked")
    name = await _written(request, stores, None)
    return DraftAsked(tag=request.tag, became="nothing" if name is None else "written")


@function(
    "pipeline::draft",
    On("pipeline.drafting"),
    role="operator",
    lane="pi",
    writes=True,
    keeps_answer=False,
    accept=accept,
)
async def draft(request: WriteDraft, call: Call, stores: Drafting, author: Author) -> WrittenDraft:
    """Write a draft for the predicted decision of its batch.

    If the process is killed, the next one writes the draft, unless its batch has ended.
    """
    return WrittenDraft(tag=request.tag, author=await _written(request, stores, author))


async def _written(request: WriteDraft, stores: Drafting, author: Author | None) -> str | None:
    """Who wrote the draft; None: it is no longer wanted."""
    p, _ = await stores.pipelines.read(request.tag)
    if p.draft is None or p.draft.number != request.number or p.draft.state != "drafting":
        return None
    facts = await stores.programs.findings_facts(request.tag)
    version = await _version(p.draft, facts, author)

    async def ready(stand: PipelineState) -> PipelineStep | None:
        return written(stand.pipeline, request.number, version.text())

    return version.author if await stores.pipelines.take(request.tag, ready) else None


async def _version(draft: Draft, facts: FindingsFacts, author: Author | None) -> ProgramVersion:
    """The draft as a version of the program, numbered as the next one for now."""
    # in a thread: with a thousand runs it takes tens of milliseconds
    findings = foreseen(await asyncio.to_thread(findings_of, facts, CATEGORIES), draft, facts.beliefs)
    return await authored(author, TASK, findings, facts.due, reason=f"drafted ahead as {draft.spec_id}")
