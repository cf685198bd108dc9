"""program::write writes the next version of a tag's program, by a language model or by the templates."""

from __future__ import annotations

from asyncio import gather
from typing import Annotated, Literal

from pydantic import Field

from functions.contract import Call, Command, Response, function
from functions.lanes import Author
from functions.program._stores import Stores
from functions.program._writing import advanced, written
from functions.rules.program.due import next_step, patience_s
from state.ids import Tag as TagName
from state.settings import Settings


class WriteProgram(Command):
    tag: TagName
    reason: Annotated[str, Field(min_length=1, max_length=200)] = Field(
        "an operator asked for it",
        description="why, for the list of versions",
        examples=["the plan has changed"],
    )
    number: int | None = Field(
        None, ge=1, description="the version that was asked for; callers leave it out", examples=[7]
    )


class ProgramBegun(Response):
    tag: str
    number: int
    """Number of the version."""
    became: Literal["written", "asked"]
    """written: by the templates, now. asked: a language model writes it, which may take minutes."""


class WrittenProgram(Response):
    tag: str
    number: int
    """Number of the newest version."""
    author: str | None
    """Who wrote it; null: another process has, or it was no longer wanted."""


@function("program::write", role="operator", writes=True, keeps_answer=False)
async def accept(request: WriteProgram, stores: Stores, settings: Settings) -> ProgramBegun:
    """Write a version now, or ask the lane `pi` for it."""
    due, found = await gather(
        stores.programs.due_facts(request.tag), stores.presence.author(settings.stale_s)
    )
    has_author = found is not None
    answered_s = patience_s(settings.llm_timeout_s)
    step = next_step(due, has_author=has_author, on_demand=request.reason, answered_s=answered_s)
    became = await advanced(due, step, stores, settings)
    return ProgramBegun(tag=request.tag, number=due.number, became=became)


@function("program::write", role="operator", lane="pi", writes=True, keeps_answer=False, accept=accept)
async def write(request: WriteProgram, call: Call, stores: Stores, author: Author) -> WrittenProgram:
    """Write the next version of a tag's program, by a language model if there is one, else by the templates.

    With a language model the answer is 202, and program::list shows the version later.
    """
    due = await stores.programs.due_facts(request.tag)
    newest = due.number - 1
    if due.ask is None or request.number != due.number:
        return WrittenProgram(tag=request.tag, number=newest, author=None)
    version = await written(due, due.ask.reason, stores, author)
    if version is None:
        return WrittenProgram(tag=request.tag, number=due.number, author=None)
    return WrittenProgram(tag=request.tag, number=version.number, author=version.author)
