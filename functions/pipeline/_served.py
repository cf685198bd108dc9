"""The draft that is served to workers: ready or confirmed, in a swarm with a generated program."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from functions.formats.charter import Reader
from functions.pipeline._stores import Reading
from functions.rules.swarm.populations import Population
from functions.views.program_document import composed
from state.program_facts import Base, ProgramVersion
from state.records import Draft
from state.settings import Settings


@dataclass(frozen=True)
class ServedDraft:
    """A draft with the parts of its document."""

    draft: Draft
    base: Base
    version: ProgramVersion
    bank: float
    """Trust in drafts, 0 to 1."""

    def document(self, reader: Reader, population: Population | None = None) -> str:
        """The document for everyone, or for the workers of one population."""
        return composed(self.base, self.version, reader, population)


async def served(tag: str, stores: Reading, settings: Settings) -> ServedDraft | None:
    """The served draft of a swarm; None: there is none, or pipelines are off."""
    if not settings.pipeline_enabled:
        return None
    (p, text), program = await asyncio.gather(stores.pipelines.read(tag), stores.programs.served(tag))
    if p.draft is None or p.draft.state == "drafting" or text is None:
        return None
    if program.base is None or program.current is None:
        return None
    return ServedDraft(p.draft, program.base, ProgramVersion.read(text), p.bank)
