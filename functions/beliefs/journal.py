"""The journal of a swarm's beliefs: its checkpoints."""

from __future__ import annotations

from pydantic import Field

from functions.beliefs.rules.theory import chapter, is_due
from functions.beliefs.views import checkpoint_text, journal_text
from functions.kernel.contract import Command, Http, OfSwarm, On, Response, Text, function
from state.change import Change
from state.hypotheses import Journal
from state.ids import Tag as TagName
from state.settings import Settings


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
        found = chapter(facts)
        gone = [h.hypothesis_id for h in found.eliminated]
        text = checkpoint_text(found, await journal.last_evidence(request.tag, gone))
        written = {
            "number": found.now.number,
            "results": found.now.results,
            "eliminated": len(gone),
            "proposed": len(found.proposed),
        }
        journal.append(change, request.tag, found.now, text, written)
        return WrittenCheckpoint(written=True, number=found.now.number, text=text)

    return await journal.change(decide, in_turn=request.tag)


class ListCheckpoints(OfSwarm):
    first: int = Field(1, ge=1, le=10**9, description="number of the first one", examples=[1])


class CheckpointView(Response):
    number: int
    text: str
    """Markdown."""


class ListedCheckpoints(Response):
    tag: str
    count: int
    """Number of all checkpoints; for those that do not fit, ask again from the next number."""
    checkpoints: list[CheckpointView]
    """At least one if there is one, at most 256 KiB, oldest first."""


@function("journal::list", role="viewer")
async def list_checkpoints(
    request: ListCheckpoints, journal: Journal, settings: Settings
) -> ListedCheckpoints:
    """The checkpoints of the journal from a number on, oldest first; empty if the tag does not exist."""
    tag = request.tag_in(settings)
    pages = await journal.read(tag, request.first)
    shown = [CheckpointView(number=pages.first + n, text=text) for n, text in enumerate(pages.texts)]
    return ListedCheckpoints(tag=tag, count=pages.count, checkpoints=shown)


@function("journal::read", Http("GET", "/meta_log"), role="viewer", is_public=True)
async def read(request: OfSwarm, journal: Journal, settings: Settings) -> Text:
    """The newest checkpoints of the journal, oldest first, at most 256 KiB; empty while there is none."""
    tag = request.tag_in(settings)
    return Text(content=journal_text(await journal.read(tag), tag))
