"""tag::unpause lets a paused tag's runs go on."""

from __future__ import annotations

from functions.contract import Command, Response, function
from state.experiments import Experiments
from state.ids import Tag as TagName
from state.tags import Tags


class Unpause(Command):
    tag: TagName


class Unpaused(Response):
    tag: str
    paused: bool
    changed: bool
    """False where it was not paused."""
    waiting: int
    """Experiments that wait for a GPU."""


@function("tag::unpause", role="operator", writes=True)
async def unpause(request: Unpause, tags: Tags, experiments: Experiments) -> Unpaused:
    """Dispatch a paused tag again: what waited is back in its place."""
    changed = await tags.unpause(request.tag)
    tag = await tags.get(request.tag)
    return Unpaused(
        tag=tag.name,
        paused=tag.paused_at is not None,
        changed=changed,
        waiting=(await experiments.counts(request.tag, ("queued",)))["queued"],
    )
