"""A version of a program: in an author's words, or in those of the templates where nothing usable came of it."""

from __future__ import annotations

from functions.formats.authored import ProgramUpdate
from functions.lanes import Author, Commission
from functions.rules.program import templates
from functions.rules.program.due import strategy_of
from functions.rules.program.findings import Findings
from functions.views.findings_text import findings_text
from functions.views.program_block import block_of
from state.program_facts import DueFacts, ProgramVersion


async def authored(
    author: Author | None, task: str, findings: Findings, due: DueFacts, *, reason: str
) -> ProgramVersion:
    """The version that comes after what `due` knows; None: there is no author, and the templates write.

    Its strategy is that of most workers, which the next version is due by; the findings of a draft have another one.
    """
    update, name = None, templates.NAME
    if author is not None:
        update = await author.write(ProgramUpdate, Commission(task, findings_text(findings)))
        name = templates.NAME if update is None else author.name
    update = update or templates.program_update(findings)
    return ProgramVersion(
        number=due.number,
        at=due.now,
        author=name,
        reason=reason,
        results=due.tag.results,
        strategy=strategy_of(due),
        block=block_of(update, author=name, results=due.tag.results),
        base_digest="" if due.base is None else due.base.digest,
    )
