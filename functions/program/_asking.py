"""The next step of a program: nothing, a version by the templates, or a language model that is asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from functions.program._charter import rebased
from functions.program._stores import Stores
from functions.program._writing import written
from functions.rules.program.due import Step, ask_of
from state.program_facts import DueFacts
from state.settings import Settings

FUNCTION = "program::write"


async def advanced(
    due: DueFacts, step: Step, stores: Stores, settings: Settings
) -> Literal["written", "asked"]:
    """Take a step that is not nothing; another process may have taken it before."""
    if due.base is None:
        await rebased(stores.programs, settings)
        due = replace(due, base=await stores.programs.base())
    if step.what == "templates":
        await written(due, step.reason, stores, None)
        return "written"
    if step.what == "ask":
        await stores.programs.ask(due.tag.name, ask_of(due, step))
    longest_s = settings.llm_timeout_s
    await stores.queue.enqueue(FUNCTION, due.tag.name, due.number, attempt=step.attempt, longest_s=longest_s)
    return "asked"
