"""The draft that is served: a ready or confirmed one, of a swarm whose workers have a generated program."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from functions.pipeline._stores import Reading
from functions.views.program_document import composed
from state.program_facts import ProgramVersion
from state.records import Draft
from state.settings import Settings


@dataclass(frozen=True)
class ServedDraft:
    """A draft as a whole document."""

    draft: Draft
    document: str
    bank: float
    """How far drafts are trusted."""


async def served(tag: str, stores: Reading, settings: Settings) -> ServedDraft | None:
    """What is served of a swarm's pipeline; None: nothing, or it is switched off."""
    if not settings.pipeline_enabled:
        return None
    (p, text), program = await asyncio.gather(stores.pipelines.read(tag), stores.programs.served(tag))
    if p.draft is None or p.draft.state == "drafting" or text is None:
        return None
    if program.base is None or program.current is None:
        return None
    return ServedDraft(p.draft, composed(program.base, ProgramVersion.read(text)), p.bank)
