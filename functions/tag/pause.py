"""tag::pause holds a tag's runs back until tag::unpause."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from functions.contract import Command, Response, function
from state.experiments import Experiments
from state.ids import Tag as TagName
from state.records import Status, stamp
from state.tags import Tags

PAGE = 500
ON_A_GPU: tuple[Status, ...] = ("leased", "running")


class Pause(Command):
    tag: TagName
    reason: Annotated[str, Field(min_length=1, max_length=500)] | None = None
    stop_running: bool = Field(False, description="stop its runs in progress too; else they go on")


class Paused(Response):
    tag: str
    paused: bool
    changed: bool
    """False where it was paused before."""
    reason: str | None
    paused_at: str | None
    waiting: int
    """Experiments that keep their place meanwhile."""
    stopping: list[str]
    """Experiments whose worker was told to stop."""


@function("tag::pause", role="operator", writes=True)
async def pause(request: Pause, tags: Tags, experiments: Experiments) -> Paused:
    """Dispatch nothing of a tag: what waits keeps its place, what runs goes on, others are served at once."""
    changed = await tags.pause(request.tag, request.reason)
    stopping = await _stop_all(request, experiments) if request.stop_running else []
    tag = await tags.get(request.tag)
    return Paused(
        tag=tag.name,
        paused=tag.paused_at is not None,
        changed=changed,
        reason=tag.pause_reason,
        paused_at=stamp(tag.paused_at) if tag.paused_at is not None else None,
        waiting=(await experiments.counts(request.tag, ("queued",)))["queued"],
        stopping=stopping,
    )


async def _stop_all(request: Pause, experiments: Experiments) -> list[str]:
    """Nothing of a paused tag begins, so one look at each status finds every run."""
    told: list[str] = []
    for status in ON_A_GPU:
        above: int | None = 0
        while above is not None:
            found, _, above = await experiments.page(
                request.tag, status=status, limit=PAGE, above=above, newest=False
            )
            told += [
                e.experiment_id for e in found if await _stop(e.experiment_id, request.reason, experiments)
            ]
    return told


async def _stop(experiment_id: str, reason: str | None, experiments: Experiments) -> bool:
    while True:
        e = await experiments.get(experiment_id)
        if e.status not in ON_A_GPU:
            return False
        if e.stopping or await experiments.ask_to_stop(e, reason or "its tag was paused"):
            return True
