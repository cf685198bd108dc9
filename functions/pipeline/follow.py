"""pipeline::follow begins drafts of a swarm's next program, and confirms or flushes them."""

from __future__ import annotations

import asyncio
from random import Random

from pydantic import Field

from functions.contract import Command, Every, On, Response, function
from functions.pipeline._terms import terms_in
from functions.rules.pipeline.predicting import predicted
from functions.rules.pipeline.stepping import (
    PipelineTerms,
    drafted,
    is_due,
    left_of,
    next_step,
    present_decision,
    wants_draft,
)
from state.ids import Tag as TagName
from state.pipeline_facts import PipelineFacts, PipelineState, PipelineStep
from state.pipelines import Pipelines
from state.settings import Settings
from state.swarms import Swarms


class FollowPipeline(Command):
    tag: TagName | None = Field(None, description="the swarm; default: every one", examples=["swarm"])


class FollowedPipeline(Response):
    steps: list[str]
    """The steps in order: drafting, confirmed, flushed, or batch for a batch that ended without a ready draft."""


@function(
    "pipeline::follow",
    On("run.ticked", "experiment.finished", "pipeline.due", debounce="tag"),
    Every(seconds=60),
    role="operator",
    writes=True,
    keeps_answer=False,
)
async def follow(
    request: FollowPipeline, pipelines: Pipelines, swarms: Swarms, settings: Settings
) -> FollowedPipeline:
    """Take the due steps for the draft of a swarm's next program."""
    terms = terms_in(settings)
    if not terms.enabled:
        return FollowedPipeline(steps=[])
    tags = await swarms.tags() if request.tag is None else [request.tag]
    return FollowedPipeline(steps=[kind for tag in tags for kind in await _followed(tag, pipelines, terms)])


async def _followed(tag: str, pipelines: Pipelines, terms: PipelineTerms) -> list[str]:
    """The steps that were taken."""
    taken = list[str]()

    async def due(stand: PipelineState) -> PipelineStep | None:
        if not is_due(stand, terms):
            return None
        facts = await pipelines.facts(tag)
        step = next_step(facts, terms)
        if step is None and wants_draft(facts.stand, terms):
            return await _new_draft(facts, pipelines, terms)
        return step

    while (step := await pipelines.take(tag, due)) is not None:
        taken.append(step.kind)
    return taken


async def _new_draft(facts: PipelineFacts, pipelines: Pipelines, terms: PipelineTerms) -> PipelineStep | None:
    """Begin a draft for the predicted decision of the batch; None: there is no prediction yet."""
    name, now = facts.beliefs.tag.name, present_decision(facts)
    if now is None:
        return None  # a tag of agents: no hypothesis has workers
    early = await pipelines.early(name)
    chance = Random(f"{name} {facts.stand.pipeline.specs} {facts.stand.results}")
    left = left_of(facts.stand.results, terms)
    # some tenths of a second of CPU
    found = await asyncio.to_thread(predicted, early, left, now, chance)
    return None if found is None else drafted(facts, found)
