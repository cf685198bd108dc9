"""pipeline::spec_payload is the drafted program with its confidence."""

from __future__ import annotations

from functions.contract import Call, Http, Response, function
from functions.formats.charter import Reader
from functions.of_swarm import OfSwarm
from functions.pipeline._served import served
from functions.pipeline._stores import Preloading
from functions.rules.access import Caller
from functions.rules.swarm.populations import Population, population_of
from state.settings import Settings
from state.swarms import Swarms


class ReadDraftPayload(OfSwarm):
    """No field but the tag."""


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
    request: ReadDraftPayload, call: Call, stores: Preloading, settings: Settings
) -> DraftPayload | None:
    """The draft for workers to preload; 204 while no draft is ready or confirmed."""
    tag = request.tag_in(settings)
    found = await served(tag, stores, settings)
    if found is None:
        return None
    population = await _population(call.caller, tag, stores.swarms)
    name = None if population is None else call.caller.name
    reader = Reader(call.lab_url(settings), tag, name, is_worker=True)
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
