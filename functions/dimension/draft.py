"""dimension::draft has further dimensions proposed where a tag begins, or its search stalls."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from functions.contract import CATEGORIES, Call, Command, On, Response, function
from functions.dimension._proposing import enter
from functions.dimension._stores import Drafting
from functions.formats.authored import DimensionProposals as Proposed
from functions.formats.constants import read_constants
from functions.lanes import Author, Commission
from functions.rules.program.findings import findings_of
from functions.rules.swarm.canaries.proposing import BY, suggested
from functions.views.model_texts import findings_text, script_text, tried_text
from state.clone import script_of
from state.errors import Conflict, Invalid
from state.ids import Tag as TagName
from state.settings import Settings

log = logging.getLogger(__name__)

FUNCTION = "dimension::draft"
TASK = (
    "Propose up to three further dimensions: constants of train.py that the search does not vary yet and that could"
    " lower the metric, an axis of the architecture before a detail. Name constants that the script has, with the"
    " values that they have today; a constant that it lacks needs the line that adds it. None is an answer, too."
)


class DraftDimensions(Command):
    tag: TagName
    results: int = Field(0, ge=0, description="results that the tag had when they were wanted", examples=[75])
    number: int | None = Field(
        None, ge=1, description="of the lane's job; callers leave it out", examples=[76]
    )


class DimensionDraftBegun(Response):
    tag: str
    became: Literal["asked", "drafted"]
    """A language model was asked; or there is none, and constants of the lab's clone were proposed."""
    proposed: list[str]


class DraftedDimensions(Response):
    tag: str
    author: str | None
    """Who has proposed; null: nothing usable came."""
    proposed: list[str]
    """Names; GET /dimension_proposals says what becomes of each."""


@function("dimension::draft", role="operator", writes=True, keeps_answer=False)
async def accept(request: DraftDimensions, stores: Drafting, settings: Settings) -> DimensionDraftBegun:
    """Ask the lane `pi`; without a language model propose constants of the train.py in the lab's clone."""
    tag = request.tag
    if await stores.lane.asked(FUNCTION, tag, request.results + 1):
        return DimensionDraftBegun(tag=tag, became="asked", proposed=[])
    script, facts = await asyncio.gather(asyncio.to_thread(script_of, settings), stores.proposals.facts(tag))
    given = suggested(_constants(script), facts.dimensions, facts.proposals)
    names = [await _entered(tag, fields, BY, stores) for fields in given]
    return DimensionDraftBegun(tag=tag, became="drafted", proposed=[name for name in names if name])


@function(
    "dimension::draft",
    On("dimension.wanted"),
    role="operator",
    lane="pi",
    writes=True,
    keeps_answer=False,
    accept=accept,
)
async def draft(
    request: DraftDimensions, call: Call, stores: Drafting, author: Author, settings: Settings
) -> DraftedDimensions:
    """Have a language model propose dimensions; each is listed, and tried by itself only where the search stalls."""
    facts, script, before = await asyncio.gather(
        stores.programs.findings_facts(request.tag),
        asyncio.to_thread(script_of, settings),
        stores.proposals.facts(request.tag),
    )
    findings = await asyncio.to_thread(findings_of, facts, CATEGORIES)
    base = "" if facts.due.base is None else facts.due.base.workers or facts.due.base.text
    told = (findings_text(findings), tried_text(before.proposals), script_text(_constants(script), base))
    context = "\n\n".join(filter(None, told))
    given = await author.write(Proposed, Commission(TASK, context))
    if given is None:
        return DraftedDimensions(tag=request.tag, author=None, proposed=[])
    fields = [p.model_dump() for p in given.proposals]
    names = [await _entered(request.tag, f, author.name, stores) for f in fields]
    return DraftedDimensions(tag=request.tag, author=author.name, proposed=[n for n in names if n])


async def _entered(tag: str, fields: Mapping[str, Any], by: str, stores: Drafting) -> str | None:
    try:
        found = await enter(tag, fields, by, "llm" if by != BY else "default", stores.proposals)
    except Conflict as problem:
        log.warning("%r of %s is not listed: %s", fields["name"], by, problem.detail)
        return None
    return found.proposal.name


def _constants(script: str | None) -> dict[str, object]:
    """The constants at the top level of a script; none of one that is no Python."""
    if script is None:
        return {}
    try:
        return read_constants(script)
    except Invalid:
        return {}
