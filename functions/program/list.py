"""program::list shows the versions of a tag's program."""

from __future__ import annotations

import builtins

from pydantic import BaseModel, ConfigDict, Field

from functions.contract import Response, function
from functions.of_swarm import OfSwarm
from state.program_facts import ProgramVersion
from state.programs import Programs
from state.records import stamp
from state.settings import Settings


class ListPrograms(OfSwarm):
    limit: int = Field(20, ge=1, le=200, description="most versions of the answer")
    offset: int = Field(0, ge=0, le=10**9, description="newer versions to pass over")


class ProgramView(BaseModel):
    model_config = ConfigDict(frozen=True, defer_build=True)

    number: int
    written_at: str
    author: str
    """`templates`, or the provider and model that wrote it."""
    reason: str
    results: int
    """Results of the tag at that time."""
    strategy: str
    text: str
    """The text between the markers."""


class ListedPrograms(Response):
    tag: str
    count: int
    """Number of all versions."""
    versions: builtins.list[ProgramView]
    """The newest first."""


@function("program::list", role="viewer")
async def list(request: ListPrograms, programs: Programs, settings: Settings) -> ListedPrograms:
    """Versions of a tag's program, the newest first, with who wrote each, when and why."""
    tag = request.tag_in(settings)
    versions, count = await programs.versions(tag, request.offset, request.limit)
    return ListedPrograms(tag=tag, count=count, versions=[_view(v) for v in versions])


def _view(v: ProgramVersion) -> ProgramView:
    return ProgramView(
        number=v.number,
        written_at=stamp(v.at),
        author=v.author,
        reason=v.reason,
        results=v.results,
        strategy=v.strategy,
        text=v.block,
    )
