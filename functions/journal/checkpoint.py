"""journal::checkpoint records the changes of a swarm's beliefs."""

from __future__ import annotations

import asyncio

from pydantic import Field

from functions.contract import Command, On, Response, function
from functions.rules.beliefs.chronicle import chapter, eliminated, is_due
from functions.views.journal_markdown import checkpoint_text
from state.change import Change
from state.ids import Tag as TagName
from state.journal import Journal


class WriteCheckpoint(Command):
    tag: TagName
    results: int | None = Field(
        None,
        ge=1,
        description="write only if no checkpoint covers this many results; default: if anything is new",
        examples=[100],
    )


class WrittenCheckpoint(Response):
    written: bool
    """False: nothing is new since the newest checkpoint."""
    number: int | None
    """Number of the newest checkpoint; null: there is none."""
    text: str | None
    """Markdown of the checkpoint, if it was written now."""


@function("journal::checkpoint", On("journal.due"), role="operator", writes=True)
async def checkpoint(request: WriteCheckpoint, journal: Journal) -> WrittenCheckpoint:
    """Append a checkpoint to the journal, if anything is new since the newest one."""

    async def decide(change: Change) -> WrittenCheckpoint:
        facts = await journal.facts(request.tag, change)
        if not is_due(facts, request.results):
            number = facts.before.number or None
            return change.idle(WrittenCheckpoint(written=False, number=number, text=None))
        # in threads: with a thousand hypotheses they take tenths of a second
        gone = [h.hypothesis_id for h in await asyncio.to_thread(eliminated, facts)]
        found = await asyncio.to_thread(chapter, facts, await journal.last_evidence(request.tag, gone))
        text = checkpoint_text(found)
        written = {
            "number": found.now.number,
            "results": found.now.results,
            "eliminated": len(gone),
            "proposed": len(found.proposed),
        }
        journal.append(change, request.tag, found.now, text, written)
        return WrittenCheckpoint(written=True, number=found.now.number, text=text)

    return await journal.change(decide, in_turn=request.tag)
