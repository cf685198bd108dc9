"""tag::unpause lets a paused tag's runs go on."""

from __future__ import annotations

from functions.contract import Command, Response, function
from state.ids import Tag as TagName
from state.tags import Tags


class UnpauseTag(Command):
    tag: TagName


class UnpausedTag(Response):
    tag: str
    paused: bool
    changed: bool
    """False where it was not paused."""
    waiting: int
    """Experiments that wait for a GPU."""


@function("tag::unpause", role="operator", writes=True)
async def unpause(request: UnpauseTag, tags: Tags) -> UnpausedTag:
    """Dispatch a paused tag again: what waited is back in its place."""
    changed, waiting = await tags.unpause(request.tag)
    return UnpausedTag(tag=request.tag, paused=False, changed=changed, waiting=waiting)
