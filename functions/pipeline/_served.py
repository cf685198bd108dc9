"""The draft that is served: a ready or confirmed one, of a swarm whose workers have a generated program."""

from __future__ import annotations

from dataclasses import dataclass

from state.pipelines import Pipelines
from state.records import Draft
from state.settings import Settings


@dataclass(frozen=True)
class Served:
    """A draft with its text."""

    draft: Draft
    text: str
    bank: float


async def served(tag: str, pipelines: Pipelines, settings: Settings) -> Served | None:
    """What is served of a swarm's pipeline; None: nothing, or it is switched off."""
    if not settings.pipeline_enabled:
        return None
    stand = await pipelines.stand(tag)
    p = stand.pipeline
    if p.draft is None or p.draft.state == "drafting" or not stand.has_program:
        return None
    text = await pipelines.text(tag, p.draft.spec_id)
    return None if text is None else Served(p.draft, text, p.bank)
