"""program::refresh keeps programs up to date with results and with the operator's charter."""

from __future__ import annotations

from pydantic import Field

from functions.contract import Command, Every, On, Response, function
from functions.program._stores import Stores
from functions.program._writing import advanced, rebased
from functions.rules.program.due import next_step, patience_s, reason_due
from state.ids import Tag as TagName
from state.settings import Settings

REFRESH_S = 30.0


class RefreshProgram(Command):
    tag: TagName | None = Field(
        None, description="only this tag; else every tag of which a version was asked for", examples=["swarm"]
    )


class RefreshedProgram(Response):
    rebased: bool
    """Whether the charter's file has changed."""
    steps: dict[str, str]
    """Tags whose next version was due: `written`, or a language model was `asked`."""


@function(
    "program::refresh",
    On("experiment.finished", "strategy.changed", debounce="tag"),
    Every(REFRESH_S),
    role="operator",
    writes=True,
)
async def refresh(request: RefreshProgram, stores: Stores, settings: Settings) -> RefreshedProgram:
    """Read the charter again and write each version that is due. Safe to run twice."""
    changed = request.tag is None and await rebased(stores.programs, settings)
    tags = [request.tag] if request.tag is not None else await stores.programs.asked()
    found = {tag: step for tag in tags if (step := await _refreshed(tag, stores, settings)) is not None}
    return RefreshedProgram(rebased=changed, steps=found)


async def _refreshed(tag: str, stores: Stores, settings: Settings) -> str | None:
    due = await stores.programs.due_facts(tag)
    if due.ask is None and reason_due(due) is None:
        return None
    has_author = await stores.presence.author(settings.stale_s) is not None
    step = next_step(due, has_author=has_author, answered_s=patience_s(settings.llm_timeout_s))
    return None if step.what == "nothing" else await advanced(due, step, stores, settings)
