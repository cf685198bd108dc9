"""pipeline::adopt makes a confirmed draft the next version of its swarm's program."""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field

from functions.contract import Command, On, Response, function
from functions.pipeline._stores import Reading
from functions.rules.pipeline.stepping import confirmed_version, is_news
from functions.rules.program.due import begins_cycle
from state.ids import Id
from state.ids import Tag as TagName
from state.program_facts import ProgramVersion


class AdoptDraft(Command):
    tag: TagName
    spec_id: Id = Field(description="the draft", examples=["swarm-spec-3"])


class AdoptedDraft(Response):
    tag: str
    number: int | None
    """Number of the new version; null: another draft was confirmed last, or the current version is as new."""


@function("pipeline::adopt", On("pipeline.confirmed"), role="operator", writes=True, keeps_answer=False)
async def adopt(request: AdoptDraft, stores: Reading) -> AdoptedDraft:
    """Write a confirmed draft as a version, for workers that do not preload drafts."""
    tag = request.tag
    found = await stores.pipelines.confirmed(tag)
    if found is None or found[0].spec_id != request.spec_id:
        return AdoptedDraft(tag=tag, number=None)
    confirmed, text = found
    version = confirmed_version(ProgramVersion.read(text), confirmed)

    def following(
        number: int, current: ProgramVersion | None, now: float
    ) -> tuple[ProgramVersion, bool] | None:
        if current is not None and not is_news(version, current):
            return None
        return replace(version, number=number, at=now), begins_cycle(version.results, current)

    return AdoptedDraft(tag=tag, number=await stores.programs.append(tag, following))
