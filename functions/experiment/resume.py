"""experiment::resume lifts the abort that too many crashes in a row have caused."""

from __future__ import annotations

from functions.contract import Command, Response, function
from state.ids import Tag
from state.tags import Tags


class ResumeTag(Command):
    tag: Tag


class ResumedTag(Response):
    tag: str
    consecutive_crashes_before: int


@function("experiment::resume", role="operator", writes=True)
async def resume(request: ResumeTag, tags: Tags) -> ResumedTag:
    """Start counting a tag's crashes in a row from zero."""
    return ResumedTag(tag=request.tag, consecutive_crashes_before=await tags.resume(request.tag))
