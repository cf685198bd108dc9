"""How a version of a program comes about: the findings, and the words of the templates or of a language model."""

from __future__ import annotations

import asyncio

from functions.contract import CATEGORIES
from functions.formats.authored import ProgramUpdate
from functions.lanes import Author, Commission
from functions.program._stores import Stores
from functions.rules.program import templates
from functions.rules.program.due import strategy_of
from functions.rules.program.gathering import findings_of
from functions.views.findings_text import findings_text
from functions.views.program_block import block_of
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
    update, name = None, templates.NAME
    if author is not None:
        update = await author.write(ProgramUpdate, Commission(TASK, findings_text(findings)))
        name = templates.NAME if update is None else author.name
    update = update or templates.program_update(findings)
    version = ProgramVersion(
        number=due.number,
        at=due.now,
        author=name,
        reason=reason,
        results=due.tag.results,
        strategy=strategy_of(due),
        block=block_of(update, author=name, results=due.tag.results),
        base_digest="" if due.base is None else due.base.digest,
    )
    return version if await stores.programs.write(due.tag.name, version) else None
