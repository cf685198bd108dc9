"""journal::list shows the checkpoints of a swarm's journal."""

from __future__ import annotations

import builtins

from pydantic import BaseModel, ConfigDict, Field

from functions.contract import Response, function
from functions.of_swarm import OfSwarm
from state.journal import Journal
from state.settings import Settings


class ListCheckpoints(OfSwarm):
    first: int = Field(1, ge=1, le=10**9, description="number of the first one", examples=[1])


class CheckpointView(BaseModel):
    model_config = ConfigDict(frozen=True, defer_build=True)

    number: int
    text: str
    """Markdown."""


class ListedCheckpoints(Response):
    tag: str
    count: int
    """Number of all checkpoints; for those that do not fit, ask again from the next number."""
    checkpoints: builtins.list[CheckpointView]
    """At least one if there is one, at most 256 KiB, oldest first."""


@function("journal::list", role="viewer")
async def list(request: ListCheckpoints, journal: Journal, settings: Settings) -> ListedCheckpoints:
    """The checkpoints of the journal from a number on, oldest first; empty if the tag does not exist."""
    tag = request.tag_in(settings)
    pages = await journal.read(tag, request.first)
    shown = [CheckpointView(number=pages.first + n, text=text) for n, text in enumerate(pages.texts)]
    return ListedCheckpoints(tag=tag, count=pages.count, checkpoints=shown)
