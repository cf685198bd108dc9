"""pipeline::draft writes a draft of a swarm's next program."""

from __future__ import annotations

from pydantic import Field

from functions.contract import Command, On, Response, function
from functions.rules.pipeline.drafting import drafted_text
from functions.rules.pipeline.stepping import written
from state.ids import Id
from state.ids import Tag as TagName
from state.pipelines import Pipelines


class WriteDraft(Command):
    tag: TagName
    spec_id: Id = Field(description="the draft", examples=["swarm-spec-3"])


class WrittenDraft(Response):
    spec_id: str
    is_ready: bool
    """False: it was written before, or dropped meanwhile."""


@function("pipeline::draft", On("pipeline.drafting"), role="operator", writes=True, keeps_answer=False)
async def draft(request: WriteDraft, pipelines: Pipelines) -> WrittenDraft:
    """Write what a draft says, for its batch as it is predicted to end."""
    while True:
        facts = await pipelines.facts(request.tag)
        p = facts.stand.pipeline
        # the author comes in here: it writes what this template says in plain sentences
        text = drafted_text(facts, p.draft) if p.draft is not None else ""
        step = written(p, request.spec_id, text)
        if step is None:
            return WrittenDraft(spec_id=request.spec_id, is_ready=False)
        if await pipelines.take(request.tag, step):
            return WrittenDraft(spec_id=request.spec_id, is_ready=True)
