"""program::diff shows what one version of a tag's program changed."""

from __future__ import annotations

from difflib import unified_diff

from pydantic import Field

from functions.contract import Call, Response, function
from functions.formats.charter import Reader
from functions.of_swarm import OfSwarm
from functions.views.program_document import document_for
from state.programs import Programs
from state.settings import Settings


class DiffPrograms(OfSwarm):
    number: int | None = Field(None, ge=1, description="the later version; default: the newest", examples=[7])
    against: int | None = Field(
        None, ge=0, description="the earlier one, 0 for none; default: the one before", examples=[3]
    )


class ProgramDiff(Response):
    tag: str
    number: int
    """0: none was written yet."""
    against: int
    diff: str
    """A unified diff of the whole documents, the charter included; empty where they are the same."""


@function("program::diff", role="viewer")
async def diff(request: DiffPrograms, call: Call, programs: Programs, settings: Settings) -> ProgramDiff:
    """What a version of the program changed, as a unified diff."""
    tag = request.tag_in(settings)
    number = request.number
    if number is None:
        number = await programs.count(tag)
    against = max(number - 1, 0) if request.against is None else request.against
    found = await programs.with_bases(tag, [n for n in dict.fromkeys((number, against)) if n])
    url = call.lab_url(settings)
    texts = {0: ""} | {n: document_for(s, Reader(url, tag, is_worker=s.is_swarm)) for n, s in found.items()}
    lines = unified_diff(
        texts[against].splitlines(keepends=True),
        texts[number].splitlines(keepends=True),
        f"program.md version {against}",
        f"program.md version {number}",
    )
    return ProgramDiff(tag=tag, number=number, against=against, diff="".join(lines))
