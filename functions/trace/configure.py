"""trace::configure changes how a tag's traces grow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from functions.contract import Command, Response, function
from functions.trace._stores import Stores
from state.ids import Id
from state.ids import Tag as TagName
from state.policy import Policy, TracePolicy

Count = Annotated[int, Field(ge=1)]
Priority = Annotated[float, Field(ge=-1e6, le=1e6)]


class Configure(Command):
    tag: TagName
    mode: Literal["single", "multi"] | None = Field(
        None, description="one trace or several; a new mode begins a new epoch", examples=["multi"]
    )
    target_traces: Count | None = Field(None, description="traces that grow at once", examples=[3])
    max_parallel: Count | None = Field(None, description="selections that are open at once", examples=[8])
    max_inflight_per_trace: Count | None = Field(
        None, description="selections that are open at once in one trace", examples=[1]
    )
    scheduler: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        None,
        description="round_robin, priority, weighted, softmax, uct, or package.module:Class of a plug-in",
        examples=["uct"],
    )
    scheduler_params: dict[str, float] | None = Field(
        None, max_length=32, description="the scheduler's own values", examples=[{"c": 1.4}]
    )
    lease_ttl_s: Annotated[float, Field(gt=0)] | None = Field(
        None, description="seconds after which a selection expires", examples=[900]
    )
    dead_after_crashes: Count | None = Field(
        None, description="crashes in a row that end a trace", examples=[3]
    )
    stale_after: Count | None = Field(
        None, description="experiments without a new best of the trace that end it", examples=[30]
    )
    priorities: dict[Id, Priority] | None = Field(
        None,
        max_length=100,
        description="by trace id, higher first; used by the scheduler `priority`",
        examples=[{"mar11-t3": 2.0}],
    )
    new_epoch: bool = Field(
        False, description="experiments of selections that are open now are recorded, but cannot be parents"
    )


class Configured(Response):
    tag: str
    version: int
    """Of the tag's policy."""
    epoch: int
    traces: TracePolicy
    priorities: dict[str, float]
    """Of the growing traces."""


@function("trace::configure", role="operator", writes=True)
async def configure(request: Configure, stores: Stores) -> Configured:
    """Change the traces part of a tag's policy, and the priorities of traces."""
    policy, version = await _changed(request, request.priorities or {}, stores)
    forest = await stores.traces.forest(request.tag)
    return Configured(
        tag=request.tag,
        version=version,
        epoch=forest.epoch,
        traces=policy.traces,
        priorities={t.trace_id: t.priority for t in forest.growing},
    )


async def _changed(request: Configure, priorities: Mapping[str, float], stores: Stores) -> tuple[Policy, int]:
    """The policy after the request, and its version."""
    named = request.model_dump(exclude={"tag", "request_id", "priorities", "new_epoch"}, exclude_none=True)
    if not named and not request.new_epoch:
        if priorities:
            await stores.traces.prioritise(request.tag, priorities)
        return await stores.policies.get(request.tag)
    changes: dict[str, Any] = {"traces": named} if named else {}
    return await stores.policies.change(
        request.tag,
        changes,
        check=lambda _, new: stores.schedulers.check(new),
        new_epoch=request.new_epoch,
        priorities=priorities,
    )
