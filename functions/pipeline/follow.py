"""pipeline::follow drafts a swarm's next program in time, and judges the draft once its batch has decided."""

from __future__ import annotations

import asyncio
from random import Random

from pydantic import Field

from functions.contract import Command, Every, On, Response, function
from functions.pipeline._terms import terms_in
from functions.rules.pipeline.predicting import predicted
from functions.rules.pipeline.stepping import (
    Terms,
    drafted,
    is_due,
    left_of,
    next_step,
    standing_decision,
    wants_draft,
)
from state.ids import Tag as TagName
from state.pipeline_facts import PipelineFacts, Step
from state.pipelines import Pipelines
from state.settings import Settings
from state.swarms import Swarms


class FollowPipeline(Command):
    tag: TagName | None = Field(None, description="the swarm; default: every one", examples=["swarm"])


class FollowedPipeline(Response):
    steps: list[str]
    """What happened, in order: drafting, confirmed, flushed, or batch, where one is over without a judgement."""


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
    """Do what is to be done for the draft of a swarm's next program; often that is nothing."""
    terms = terms_in(settings)
    if not terms.enabled:
        return FollowedPipeline(steps=[])
    tags = await swarms.tags() if request.tag is None else [request.tag]
    return FollowedPipeline(steps=[kind for tag in tags for kind in await _followed(tag, pipelines, terms)])


async def _followed(tag: str, pipelines: Pipelines, terms: Terms) -> list[str]:
    """The steps that were taken; each is decided on what stood before it."""
    taken = list[str]()
    while is_due(await pipelines.stand(tag), terms):
        facts = await pipelines.facts(tag)
        step = next_step(facts, terms)
        if step is None and wants_draft(facts.stand, terms):
            step = await _new_draft(facts, pipelines, terms)
        if step is None:
            break
        if await pipelines.take(tag, step):
            taken.append(step.kind)
    return taken


async def _new_draft(facts: PipelineFacts, pipelines: Pipelines, terms: Terms) -> Step | None:
    """Begin a draft for the decision that the batch is predicted to make; None: it cannot be predicted yet."""
    name, now = facts.beliefs.tag.name, standing_decision(facts)
    if now is None:
        return None  # a tag of agents: no hypothesis has workers
    early = await pipelines.early(name)
    chance = Random(f"{name} {facts.stand.pipeline.specs} {facts.stand.results}")
    left = left_of(facts.stand.results, terms)
    # some tenths of a second of CPU
    found = await asyncio.to_thread(predicted, early, left, now, chance)
    return None if found is None else drafted(facts, found)
