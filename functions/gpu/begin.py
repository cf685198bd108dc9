"""gpu::begin begins an attempt that pool::next has handed out."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from functions.contract import Call, Response, function
from functions.gpu._lease import OfLease, lease_of
from functions.gpu._stores import Stores
from state.records import Footprint
from state.settings import Settings


class BeginRun(OfLease):
    runner: Annotated[str, Field(min_length=1, max_length=200)] = Field(
        description="the process that runs it, <host>:<pid>:<start>; the same one may ask again",
        examples=["node1:4242:998877"],
    )
    footprint: Footprint | None = Field(
        None, description="what the GPU's memory held before", examples=[{"used_mb": 12.0, "processes": {}}]
    )


class RunBegun(Response):
    begun: bool
    """False: another process has begun it, or the lease is over; then it is not to be run."""


@function("gpu::begin", role="worker", writes=True, keeps_answer=False)
async def begin(request: BeginRun, call: Call, stores: Stores, settings: Settings) -> RunBegun:
    """Begin an attempt under its lease; the fence lets one process do so, which may ask again."""
    lease, gpu = await lease_of(request, call, stores, settings.stale_s)
    e = lease.experiment
    if e.status == "running" and (e.attempt, e.fence) == (request.attempt, request.fence):
        is_ours = gpu is not None and (gpu.fence, gpu.runner) == (request.fence, request.runner)
        return RunBegun(begun=is_ours)
    return RunBegun(begun=await lease.begin(request.runner, request.footprint))
