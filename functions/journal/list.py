"""journal::list gives a swarm's journal checkpoint by checkpoint."""

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
    """Checkpoints that there are in all; ask again from the next number on for those that do not fit."""
    checkpoints: builtins.list[CheckpointView]
    """As many as 256 KiB hold, one at least where there is one, oldest first."""


@function("journal::list", role="viewer")
async def list(request: ListCheckpoints, journal: Journal, settings: Settings) -> ListedCheckpoints:
    """The checkpoints of the journal from one on, oldest first; none without such a tag."""
    tag = request.tag_in(settings)
    pages = await journal.read(tag, request.first)
    shown = [CheckpointView(number=pages.first + n, text=text) for n, text in enumerate(pages.texts)]
    return ListedCheckpoints(tag=tag, count=pages.count, checkpoints=shown)
