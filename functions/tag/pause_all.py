"""tag::pause_all holds the runs of every tag back until tag::unpause_all, or tag::unpause of one."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from functions.contract import Command, Response, function
from state.tags import Tags


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
