"""experiment::resume lifts the abort that too many crashes in a row have caused."""

from __future__ import annotations

from functions.contract import Command, Response, function
from state.ids import Tag
from state.tags import Tags


class Resume(Command):
    tag: Tag


class Resumed(Response):
    tag: str
    consecutive_crashes_before: int


@function("experiment::resume", role="operator", writes=True)
async def resume(request: Resume, tags: Tags) -> Resumed:
    """Start counting a tag's crashes in a row from zero."""
    return Resumed(tag=request.tag, consecutive_crashes_before=await tags.resume(request.tag))
