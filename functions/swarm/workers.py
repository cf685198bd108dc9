"""swarm::workers lists the workers of a swarm for its organiser, with how to reach their owners."""

from __future__ import annotations

import builtins

from pydantic import BaseModel, ConfigDict, Field

from functions.contract import Http, Response, function
from functions.of_swarm import OfSwarm
from functions.swarm._stores import Stores
from state.settings import Settings


class ListWorkers(OfSwarm):
    limit: int = Field(100, ge=1, le=1000, description="most workers that are answered")
    offset: int = Field(0, ge=0, le=1_000_000_000, description="so many that joined earlier are left out")


class WorkerView(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=False, defer_build=True)

    number: int
    """In the order in which they joined, from 1."""
    worker_id: str
    gpu_type: str
    baseline_bpb: float
    """What its unchanged train.py measured."""
    contact: str | None
    """How to reach its owner, as that has said."""
    runs: int
    """Its runs that ended with a value, or were stopped, and were not retracted."""
    active: int
    """Its runs that go on."""
    run_id: str | None
    """The one that it was handed out last, while that goes on."""
    joined_at: float
    heard_at: float
    """When it last joined, got a run or reported, in seconds since 1970."""


class SwarmWorkers(Response):
    workers: builtins.list[WorkerView]
    total: int


@function("swarm::workers", Http("GET", "/api/swarm/workers"), role="operator")
async def workers(request: ListWorkers, stores: Stores, settings: Settings) -> SwarmWorkers:
    """The workers of a swarm with how to reach their owners, in the order in which they joined."""
    tag = request.tag_in(settings)
    found, total = await stores.swarms.workers(tag, request.offset, request.limit)
    return SwarmWorkers(
        workers=[WorkerView.model_validate(worker, from_attributes=True) for worker in found],
        total=total,
    )
