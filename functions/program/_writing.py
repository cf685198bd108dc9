"""How a version of a program comes about: the findings, and the words of the templates or of a language model."""

from __future__ import annotations

import asyncio

from functions.authoring import authored
from functions.contract import CATEGORIES
from functions.lanes import Author
from functions.program._stores import Stores
from functions.rules.program.gathering import findings_of
from state.program_facts import DueFacts, ProgramVersion

TASK = (
    "Write the part of program.md that changes with the evidence. Its readers are coding agents and workers that"
    " train what they are told to; they act on it at once. Say what the findings support and no more; where they"
    " decide nothing, say what would. Do not repeat the findings' tables."
)


async def written(due: DueFacts, reason: str, stores: Stores, author: Author | None) -> ProgramVersion | None:
    """The next version, by the author, or by the templates where there is none or nothing usable came of it.

    None: another version was written meanwhile.
    """
    facts = await stores.programs.findings_facts(due.tag.name)
    # in a thread: with a thousand runs it takes tens of milliseconds
    findings = await asyncio.to_thread(findings_of, facts, CATEGORIES)
    version = await authored(author, TASK, findings, due, reason=reason)
    return version if await stores.programs.write(due.tag.name, version) else None
