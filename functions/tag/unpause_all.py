"""tag::unpause_all lets the runs of every paused tag go on."""

from __future__ import annotations

from functions.contract import Command, Response, function
from state.tags import Tags


class UnpauseAllTags(Command):
    pass


class UnpausedAllTags(Response):
    resumed: list[str]
    """Tags that were paused, by tag::pause or by tag::pause_all."""


@function("tag::unpause_all", role="operator", writes=True)
async def unpause_all(request: UnpauseAllTags, tags: Tags) -> UnpausedAllTags:
    """Dispatch every paused tag again: what waited is back in its place."""
    return UnpausedAllTags(resumed=[name for name in await tags.paused() if (await tags.unpause(name))[0]])
