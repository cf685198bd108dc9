"""swarm::sync tells a worker what its swarm knows: the programme, the dimensions, the best configs."""

from __future__ import annotations

import asyncio
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from functions.contract import Call, Http, Request, Response, function
from functions.formats.charter import Reader
from functions.rules.access import check_worker
from functions.rules.keeps.verdict import score
from functions.rules.swarm.handing_out import run_time
from functions.rules.swarm.populations import population_of
from functions.swarm._stores import Stores
from functions.views.program_document import document_for
from state.ids import Id
from state.programs import digest_of
from state.records import SwarmWorker, Value
from state.settings import Settings

TOP = 5


class ReadSync(Request):
    worker_id: Id = Field(description="who asks", examples=["h100-3"])


class SyncedDimension(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=False, defer_build=True)

    name: str
    frozen: bool
    frozen_value: Annotated[Value | None, WithJsonSchema({})]
    importance: float | None
    best_known_value: Annotated[Value | None, WithJsonSchema({})]
    """What the best run had."""
    is_canary: bool
    """On trial: only a share of the configs varies it."""
    default_value: Annotated[Value | None, WithJsonSchema({})]
    """Its value in train.py, for configs that leave it out as most do during its trial; null: all configs name it."""


class TopConfig(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=False, defer_build=True)

    config_delta: dict[str, object]
    delta_bpb: float


class Synced(Response):
    program_md: str
    """The whole document for the worker's population; empty: keep the one that you have."""
    program_digest: str
    """First 16 hexadecimal digits of its SHA-256."""
    dimensions: list[SyncedDimension]
    top_configs: list[TopConfig]
    """The best runs, best first."""
    experiment_count: int
    active_workers: int
    budget_seconds: int
    """Seconds of a run without extension. A worker measures its baseline with it."""
    population_id: str
    population_strategy: str
    hypothesis_id: str | None
    hypothesis_statement: str
    updated_at: float
    """When the newest run of the swarm ended, in seconds since 1970; else when its tag was opened."""


@function(
    "swarm::sync",
    Http("GET", "/sync/{worker_id}", has_etag=True),
    Http("POST", "/sync/{worker_id}", has_etag=True),
    role="worker",
)
async def sync(request: ReadSync, call: Call, stores: Stores, settings: Settings) -> Synced:
    """What the swarm knows, for a worker between two runs."""
    check_worker(call.caller, request.worker_id)
    return await synced(await stores.swarms.known(request.worker_id), call.lab_url(settings), stores)


async def synced(worker: SwarmWorker, lab_url: str, stores: Stores) -> Synced:
    """The answer for one worker; writes nothing."""
    facts, judged, served = await asyncio.gather(
        stores.swarms.facts(worker.tag),
        stores.swarms.best_runs(worker.tag, TOP),
        stores.programs.served(worker.tag),
    )
    best = [run for run, _ in sorted(judged, key=lambda each: score(each[1], facts.tag.direction))][:TOP]
    population = population_of(worker, facts)
    reader = Reader(lab_url, worker.tag, worker.worker_id, is_worker=True)
    program = document_for(served, reader, population)
    known = best[0].config_delta if best else {}
    return Synced(
        program_md=program,
        program_digest=digest_of(program),
        dimensions=[
            SyncedDimension(
                name=d.name,
                frozen=d.frozen,
                frozen_value=d.frozen_value,
                importance=d.importance,
                best_known_value=known.get(d.name),
                is_canary=d.is_canary,
                default_value=d.default_value,
            )
            for d in facts.dimensions
        ],
        top_configs=[
            TopConfig(config_delta=run.config_delta, delta_bpb=run.delta_bpb)
            for run in best
            if run.delta_bpb is not None
        ],
        experiment_count=facts.tag.results,
        active_workers=facts.active_workers,
        budget_seconds=run_time(facts.policy).budget_s,
        population_id=population.population_id,
        population_strategy=population.strategy,
        hypothesis_id=population.hypothesis_id,
        hypothesis_statement=population.statement,
        updated_at=facts.newest_at,
    )
