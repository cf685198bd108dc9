"""Writing a version of a program from charter and findings, by a language model or by templates."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Literal

from functions.authoring import authored
from functions.contract import CATEGORIES
from functions.formats.program_document import charter_of
from functions.lanes import Author
from functions.program._stores import Stores
from functions.rules.program.due import ProgramStep, ask_of
from functions.rules.program.findings import findings_of
from state.charter_file import read_charters
from state.client_settings import host_name
from state.errors import NightjarError
from state.program_facts import DueFacts, ProgramVersion
from state.programs import Programs
from state.settings import Settings

log = logging.getLogger(__name__)
FUNCTION = "program::write"
TASK = (
    "Write the part of program.md that changes with the evidence. Its readers are coding agents and workers that"
    " train what they are told to; they act on it at once. Say what the findings support and no more; where they"
    " decide nothing, say what would. Do not repeat the findings' tables."
)


async def advanced(
    due: DueFacts, step: ProgramStep, stores: Stores, settings: Settings
) -> Literal["written", "asked"]:
    """Take a step other than `nothing`; another process may already have taken it."""
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


async def written(due: DueFacts, reason: str, stores: Stores, author: Author | None) -> ProgramVersion | None:
    """The next version, by the author, or by the templates without a usable text of an author.

    None: another version was written in the meantime.
    """
    facts = await stores.programs.findings_facts(due.tag.name)
    # in a thread: with a thousand runs it takes tens of milliseconds
    findings = await asyncio.to_thread(findings_of, facts, CATEGORIES)
    version = await authored(author, TASK, findings, due, reason=reason)
    return version if await stores.programs.write(due.tag.name, version) else None


async def rebased(programs: Programs, settings: Settings) -> bool:
    """Store the charter of the file if it has changed; an unusable one is logged and changes nothing."""
    try:
        text, workers = await asyncio.to_thread(read_charters, settings)
        charter_of(text)
    except NightjarError as problem:
        log.error("the charter stays as it was: %s (%s)", problem.detail, problem.hint)
        return False
    return await programs.set_base(text, host_name(), workers)
