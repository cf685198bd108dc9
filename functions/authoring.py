"""Asking a language model for texts: the queue of the lane `pi`, and a version of a program."""

from __future__ import annotations

from dataclasses import dataclass

from functions.formats.authored import ProgramUpdate
from functions.lanes import Author, Commission
from functions.rules.program import templates
from functions.rules.program.due import strategy_of
from functions.rules.program.findings import Findings
from functions.views.model_texts import findings_text
from functions.views.program_document import block_of
from state.presence import Presence
from state.program_facts import DueFacts, ProgramVersion
from state.settings import Settings
from state.train_queue import PiQueue


@dataclass(frozen=True)
class PiLane:
    """The lane `pi`, for callers who want a text."""

    presence: Presence
    queue: PiQueue
    settings: Settings

    async def asked(self, function: str, tag: str, number: int) -> bool:
        """Queue a call of a function of the lane; False: none of its processes has a language model.

        Raises:
            Unavailable: the broker does not answer.
        """
        if await self.presence.author(self.settings.stale_s) is None:
            return False
        await self.queue.enqueue(function, tag, number, longest_s=self.settings.llm_timeout_s)
        return True


async def authored(
    author: Author | None, task: str, findings: Findings, due: DueFacts, *, reason: str
) -> ProgramVersion:
    """The next version after `due`, by the author, or by the templates without a usable text.

    Its strategy is that of most workers, even where the findings of a draft predict another one.
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
