"""The draft of a swarm's next program: begun, followed, adopted, flushed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from random import Random
from typing import Annotated, Literal

from pydantic import Field

from functions.formats.program_document import DocumentReader
from functions.kernel.authoring import PiLane
from functions.kernel.contract import (
    CATEGORIES,
    Call,
    Command,
    Every,
    Http,
    OfSwarm,
    On,
    Response,
    Text,
    function,
)
from functions.kernel.lanes import Author
from functions.kernel.rules.access import Caller
from functions.pi.programs import authored
from functions.pi.rules.findings import begins_cycle, findings_of
from functions.pi.rules.predicting import predicted
from functions.pi.rules.stepping import (
    PipelineTerms,
    confirmed_version,
    drafted,
    flushed,
    foreseen,
    hit_rate,
    is_due,
    is_news,
    left_of,
    may_deploy,
    next_step,
    open_draft,
    present_decision,
    wants_draft,
    written,
)
from functions.pi.views import composed
from functions.swarm.rules.populations import Population, population_of
from state.ids import Id
from state.ids import Tag as TagName
from state.program_facts import (
    Base,
    FindingsFacts,
    PipelineFacts,
    PipelineState,
    PipelineStep,
    ProgramVersion,
)
from state.programs import Pipelines, Programs
from state.records import Draft, view_of
from state.settings import Settings
from state.swarms import Swarms


@dataclass(frozen=True)
class PipelineStores:
    """The stores of drafts and programs, and the lane that writes them."""

    pipelines: Pipelines
    programs: Programs
    swarms: Swarms
    lane: PiLane


# -- The draft that is served to workers: ready or confirmed, in a swarm with a generated program.


@dataclass(frozen=True)
class ServedDraft:
    """A draft with the parts of its document."""

    draft: Draft
    base: Base
    version: ProgramVersion
    bank: float
    """Trust in drafts, 0 to 1."""

    def document(self, reader: DocumentReader, population: Population | None = None) -> str:
        """The document for everyone, or for the workers of one population."""
        return composed(self.base, self.version, reader, population)


async def served(tag: str, stores: PipelineStores, settings: Settings) -> ServedDraft | None:
    """The served draft of a swarm; None: there is none, or pipelines are off."""
    if not settings.pipeline_enabled:
        return None
    (p, text), program = await asyncio.gather(stores.pipelines.read(tag), stores.programs.served(tag))
    if p.draft is None or p.draft.state == "drafting" or text is None:
        return None
    if program.base is None or program.current is None:
        return None
    return ServedDraft(p.draft, program.base, ProgramVersion.read(text), p.bank)


# -- The lab's settings for pipelines, as the rules take them.


def terms_in(settings: Settings) -> PipelineTerms:
    return PipelineTerms(
        enabled=settings.pipeline_enabled,
        auto_deploy=settings.pipeline_auto_deploy,
        batch_every=settings.pipeline_batch_every,
        least_confidence=settings.pipeline_least_confidence,
        least_bank=settings.pipeline_least_bank,
    )


@function("pipeline::spec", Http("GET", "/pipeline/spec"), role="viewer", is_public=True)
async def spec(request: OfSwarm, call: Call, stores: PipelineStores, settings: Settings) -> Text | None:
    """The drafted program; 204 while no draft is ready or confirmed."""
    tag = request.tag_in(settings)
    found = await served(tag, stores, settings)
    reader = DocumentReader(call.lab_url(settings), tag, is_worker=True)
    return None if found is None else Text(content=found.document(reader))


class DraftPayload(Response):
    spec_id: str
    program_md: str
    """The whole program that replaces a worker's. It includes the part of the worker's population."""
    confidence: float
    """Share of the resamples with the predicted decision, 0 to 1."""
    deployment_confidence: float
    """Trust in drafts, 0 to 1."""


@function(
    "pipeline::spec_payload", Http("GET", "/pipeline/spec_payload"), role=("viewer", "worker"), is_public=True
)
async def spec_payload(
    request: OfSwarm, call: Call, stores: PipelineStores, settings: Settings
) -> DraftPayload | None:
    """The draft for workers to preload; 204 while no draft is ready or confirmed."""
    tag = request.tag_in(settings)
    found = await served(tag, stores, settings)
    if found is None:
        return None
    population = await _population(call.caller, tag, stores.swarms)
    name = None if population is None else call.caller.name
    reader = DocumentReader(call.lab_url(settings), tag, name, is_worker=True)
    return DraftPayload(
        spec_id=found.draft.spec_id,
        program_md=found.document(reader, population),
        confidence=found.draft.confidence,
        deployment_confidence=found.bank,
    )


async def _population(caller: Caller, tag: str, swarms: Swarms) -> Population | None:
    """The population of a worker of the tag's swarm; None for other callers."""
    worker = await swarms.worker(caller.name) if caller.is_worker else None
    if worker is None or worker.tag != tag:
        return None
    return population_of(worker, await swarms.facts(tag))


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
async def accept(request: WriteDraft, stores: PipelineStores) -> DraftAsked:
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
async def draft(request: WriteDraft, call: Call, stores: PipelineStores, author: Author) -> WrittenDraft:
    """Write a draft for the predicted decision of its batch.

    If the process is killed, the next one writes the draft, unless its batch has ended.
    """
    return WrittenDraft(tag=request.tag, author=await _written(request, stores, author))


async def _written(request: WriteDraft, stores: PipelineStores, author: Author | None) -> str | None:
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


class AdoptDraft(Command):
    tag: TagName
    spec_id: Id = Field(description="the draft", examples=["swarm-spec-3"])


class AdoptedDraft(Response):
    tag: str
    number: int | None
    """Number of the new version; null: another draft was confirmed last, or the current version is as new."""


@function("pipeline::adopt", On("pipeline.confirmed"), role="operator", writes=True, keeps_answer=False)
async def adopt(request: AdoptDraft, stores: PipelineStores) -> AdoptedDraft:
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


class FlushToken(Response):
    flush_token: str | None
    """Id of the last dropped draft, which workers discard if they have preloaded it; null: none was dropped."""


@function("pipeline::flush_token", Http("GET", "/pipeline/flush_token"), role="viewer", is_public=True)
async def flush_token(request: OfSwarm, pipelines: Pipelines, settings: Settings) -> FlushToken:
    """The last dropped draft."""
    stand = await pipelines.stand(request.tag_in(settings))
    return FlushToken(flush_token=stand.pipeline.last_flush_token)


class DeploymentThresholds(Response):
    confidence: float
    """Least confidence of a draft that workers follow before it is confirmed."""
    deployment_confidence: float
    """Least trust in drafts for that."""


class PipelineStatus(Response):
    enabled: bool
    auto_deploy: bool
    deploy_allowed: bool
    """Workers may follow the draft now."""
    deployment_confidence: float
    """Trust in drafts, 0 to 1. A confirmed draft adds 0.08, a flushed one takes 0.20."""
    thresholds: DeploymentThresholds
    batch_id: int
    """Number of ended batches."""
    ticks_this_batch: int
    """Progress reports at a tenth and each fifth of a run."""
    spec_state: str | None
    """drafting, ready or confirmed; null: there is no draft."""
    spec_id: str | None
    confidence: float | None
    """Share of the resamples with the draft's predicted decision; null: there is no draft."""
    last_flush_token: str | None
    flush_count: int
    confirmed_count: int
    hit_rate: float | None
    """Share of the drafts that were confirmed; null: none was confirmed or flushed."""


@function("pipeline::status", Http("GET", "/pipeline/status"), role=("viewer", "worker"), is_public=True)
async def status(request: OfSwarm, pipelines: Pipelines, settings: Settings) -> PipelineStatus:
    """The state of a swarm's pipeline, and whether workers may follow its draft now."""
    terms = terms_in(settings)
    stand = await pipelines.stand(request.tag_in(settings))
    p = stand.pipeline
    return view_of(
        PipelineStatus,
        p,
        enabled=terms.enabled,
        auto_deploy=terms.auto_deploy,
        deploy_allowed=may_deploy(p, terms),
        deployment_confidence=p.bank,
        thresholds=DeploymentThresholds(
            confidence=terms.least_confidence, deployment_confidence=terms.least_bank
        ),
        ticks_this_batch=stand.ticks - p.ticks_before,
        spec_state=p.draft.state if p.draft else None,
        spec_id=p.draft.spec_id if p.draft else None,
        confidence=p.draft.confidence if p.draft else None,
        hit_rate=hit_rate(p),
    )
