"""A tag's budget and pause."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from functions.experiments.views.hints import Account, budget_view
from functions.kernel.contract import Command, Response, TagCommand, function
from state.booking import RESOURCES, Resource
from state.ids import Tag as TagName
from state.records import stamp, view_of
from state.tags import Limit, Tags

MOST = 10**12
"""Far above any lab, and far below where milliseconds would lose bits."""


class SetBudget(Command):
    tag: TagName
    gpu_seconds: Annotated[float, Field(ge=0, le=MOST)] | None = Field(
        None, description="most GPU seconds, null for no limit; absent leaves it", examples=[86400]
    )
    runs: Annotated[int, Field(ge=0, le=MOST)] | None = Field(
        None, description="most runs, null for no limit; absent leaves it", examples=[200]
    )
    patch_bytes: Annotated[int, Field(ge=0, le=MOST)] | None = Field(
        None,
        description="most bytes that its patches may take in the lab's store, compressed and each content once, null"
        " for no limit; absent leaves it",
        examples=[1_000_000_000],
    )


class Budgeted(Response):
    tag: str
    changed: bool
    gpu_seconds: Account
    runs: Account
    patch_bytes: Account


@function("tag::budget", role="operator", writes=True)
async def budget(request: SetBudget, tags: Tags) -> Budgeted:
    """Limit a tag's GPU seconds and runs, each reserved before a run is queued, and bytes of patches; shows them."""
    changed = await tags.set_budget(
        request.tag, {resource: _limit(request, resource) for resource in RESOURCES}
    )
    view = budget_view(await tags.get(request.tag))
    return Budgeted(tag=request.tag, changed=changed, **dict(view))


def _limit(request: SetBudget, name: Resource) -> Limit:
    """The requested limit. An absent field leaves it; null removes it."""
    if name not in request.model_fields_set:
        return "same"
    given: float | None = getattr(request, name)
    return "none" if given is None else given


class PauseTag(Command):
    tag: TagName
    reason: Annotated[str, Field(min_length=1, max_length=500)] | None = Field(
        None, description="why, for the agents", examples=["the data moves"]
    )
    stop_running: bool = Field(False, description="stop its runs in progress too; else they go on")


class PausedTag(Response):
    tag: str
    paused: bool
    changed: bool
    """False where it was paused before."""
    reason: str | None
    paused_at: str | None
    waiting: int
    """Experiments that keep their place meanwhile."""
    stopping: list[str]
    """Experiments whose worker was told to stop; agents that train themselves are told by their next heartbeat."""


@function("tag::pause", role="operator", writes=True)
async def pause(request: PauseTag, tags: Tags) -> PausedTag:
    """Dispatch nothing of a tag: what waits keeps its place, what runs goes on, others are served at once."""
    stop_reason = (request.reason or "its tag was paused") if request.stop_running else None
    done = await tags.pause(request.tag, request.reason, stop_reason=stop_reason)
    return view_of(PausedTag, done, tag=request.tag, paused=True, paused_at=stamp(done.since))


class UnpausedTag(Response):
    tag: str
    paused: bool
    changed: bool
    """False where it was not paused."""
    waiting: int
    """Experiments that wait for a GPU."""


@function("tag::unpause", role="operator", writes=True)
async def unpause(request: TagCommand, tags: Tags) -> UnpausedTag:
    """Dispatch a paused tag again: what waited is back in its place."""
    changed, waiting = await tags.unpause(request.tag)
    return UnpausedTag(tag=request.tag, paused=False, changed=changed, waiting=waiting)


class PauseAllTags(Command):
    reason: Annotated[str, Field(min_length=1, max_length=500)] | None = Field(
        None, description="why, for the agents", examples=["the machines move"]
    )


class PausedAllTags(Response):
    paused: list[str]
    """Tags that this call paused; those that were paused before keep their reason."""
    total: int
    """Tags of the lab."""


@function("tag::pause_all", role="operator", writes=True)
async def pause_all(request: PauseAllTags, tags: Tags) -> PausedAllTags:
    """Dispatch nothing of any tag, as tag::pause does for one. A tag that is opened later is not paused."""
    names = await tags.names()
    before = set(await tags.paused())
    paused = [
        name for name in names if name not in before and (await tags.pause(name, request.reason)).changed
    ]
    return PausedAllTags(paused=paused, total=len(names))


class UnpausedAllTags(Response):
    resumed: list[str]
    """Tags that were paused, by tag::pause or by tag::pause_all."""


@function("tag::unpause_all", role="operator", writes=True)
async def unpause_all(request: Command, tags: Tags) -> UnpausedAllTags:
    """Dispatch every paused tag again: what waited is back in its place."""
    return UnpausedAllTags(resumed=[name for name in await tags.paused() if (await tags.unpause(name))[0]])
