"""hypothesis::draft asks a language model for hypotheses."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from functions.beliefs.hypotheses import GateView, Proposal, entered, is_full
from functions.beliefs.rules.gate import GateReason
from functions.formats.authored import HypothesisProposals
from functions.kernel.authoring import PiLane
from functions.kernel.contract import CATEGORIES, Call, Command, On, Response, function
from functions.kernel.lanes import Author, Commission
from functions.pi.rules.findings import findings_of, suggested
from functions.pi.views import findings_text
from state.errors import Conflict
from state.hypotheses import Hypotheses
from state.ids import Tag as TagName
from state.programs import Programs
from state.records.hypotheses import HypothesisSource

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class HypothesisDrafting:
    """The stores of a draft."""

    hypotheses: Hypotheses
    programs: Programs
    lane: PiLane


FUNCTION = "hypothesis::draft"
TASK = (
    "Propose one to three hypotheses that are worth testing next: claims about the dimensions that vary, which runs"
    " can contradict, none among the known ones in other words. Prefer what would change the next runs. Each"
    " needs a test whose cells lie inside the ranges."
)


class DraftHypotheses(Command):
    tag: TagName
    number: int = Field(1, ge=1, description="the version of the program that it goes with", examples=[7])
    cycle: bool = Field(
        True, description="false: the version was drafted ahead within a cycle, and brings none"
    )


class DraftBegun(Response):
    tag: str
    became: Literal["asked", "drafted", "nothing"]
    """asked: a language model proposes. drafted: without one, the findings' suggestions went through the gate.
    nothing: the version brings no hypotheses."""
    accepted: list[str]
    """Ids of the new hypotheses."""


class DraftedHypotheses(Response):
    tag: str
    author: str | None
    """Who proposed; null: no usable reply came."""
    accepted: list[str]
    """Ids of the hypotheses that are new."""
    refused: list[GateReason]
    """The gate's reasons against the others."""


@function("hypothesis::draft", role="operator", writes=True, keeps_answer=False)
async def accept(request: DraftHypotheses, stores: HypothesisDrafting) -> DraftBegun:
    """Ask the lane `pi`; without a language model add what the findings suggest."""
    if not request.cycle:
        return DraftBegun(tag=request.tag, became="nothing", accepted=[])
    if await stores.lane.asked(FUNCTION, request.tag, request.number):
        return DraftBegun(tag=request.tag, became="asked", accepted=[])
    facts = await stores.programs.findings_facts(request.tag)
    findings = await asyncio.to_thread(findings_of, facts, CATEGORIES)
    accepted: list[str] = []
    for proposal in suggested(findings, facts.beliefs.open):
        found = await _entered(request.tag, proposal, "default", stores)
        if found is not None and found.hypothesis_id is not None:
            accepted.append(found.hypothesis_id)
            break
    return DraftBegun(tag=request.tag, became="drafted", accepted=accepted)


@function(
    "hypothesis::draft",
    On("program.written"),
    role="operator",
    lane="pi",
    writes=True,
    keeps_answer=False,
    accept=accept,
)
async def draft(
    request: DraftHypotheses, call: Call, stores: HypothesisDrafting, author: Author
) -> DraftedHypotheses:
    """Ask a language model for hypotheses, and add those that pass the gate.

    A draft whose process is killed is lost. The next version of the program brings another.
    """
    facts = await stores.programs.findings_facts(request.tag)
    findings = await asyncio.to_thread(findings_of, facts, CATEGORIES)
    if not findings.varied or is_full(facts.beliefs):  # no proposal could enter
        return DraftedHypotheses(tag=request.tag, author=None, accepted=[], refused=[])
    given = await author.write(HypothesisProposals, Commission(TASK, findings_text(findings)))
    accepted: list[str] = []
    refused: list[GateReason] = []
    for proposal in given.proposals if given is not None else ():
        fields = proposal.model_dump(exclude_none=True)
        found = await _entered(request.tag, fields, "llm_proposed", stores)
        if found is None:
            break
        if found.hypothesis_id is None:
            refused.append(found.reason)
        else:
            accepted.append(found.hypothesis_id)
    name = None if given is None else author.name
    return DraftedHypotheses(tag=request.tag, author=name, accepted=accepted, refused=refused)


async def _entered(
    tag: str, proposal: Proposal, source: HypothesisSource, stores: HypothesisDrafting
) -> GateView | None:
    """The gate's answer; None: the tag is full."""
    try:
        return await entered(tag, proposal, source, stores.hypotheses)
    except Conflict as problem:
        log.warning("no hypothesis is drafted: %s", problem.detail)
        return None
