"""tag::pause holds a tag's runs back until tag::unpause."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from functions.contract import Command, Response, function
from state.ids import Tag as TagName
from state.records import stamp
from state.tags import Tags


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
    return PausedTag(
        tag=request.tag,
        paused=True,
        changed=done.changed,
        reason=done.reason,
        paused_at=stamp(done.since),
        waiting=done.waiting,
        stopping=done.told,
    )
