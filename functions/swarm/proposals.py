"""Dimensions that are proposed, and the trials that decide on them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, StrictStr, WithJsonSchema

from functions.formats.authored import DimensionProposals
from functions.formats.constants import read_constants
from functions.kernel.authoring import PiLane
from functions.kernel.clone import script_of
from functions.kernel.contract import (
    CATEGORIES,
    Call,
    Command,
    Http,
    Line,
    OfSwarm,
    On,
    Response,
    TagCommand,
    function,
)
from functions.kernel.lanes import Author, Commission
from functions.pi.rules.findings import findings_of
from functions.pi.views import findings_text, script_text, tried_text
from functions.swarm.rules.dimensions import LONGEST_TEXT, MOST_CATEGORIES
from functions.swarm.rules.trial_proposals import BY, check_share, displaced, entered, newest_cycle, suggested
from functions.swarm.rules.trial_verdicts import needs_repeat
from functions.swarm.rules.trials import followed, to_repeat
from functions.swarm.views import ProposedDimensionView, proposed_view
from functions.trust.rules.ruling import retest_of
from state.change import Change
from state.dimensions import ProposedDimensions
from state.errors import BudgetExhausted, Conflict, Invalid, NotFound
from state.experiments import Experiments
from state.facts import RetestFacts
from state.ids import Tag as TagName
from state.programs import Programs
from state.records import Dtype, Number, ProposedDimension, Value
from state.settings import Settings
from state.swarm_facts import TrialFacts

log = logging.getLogger(__name__)

# -- Enters a proposed dimension in the list of its tag, for agents, operators and language models alike.


@dataclass(frozen=True)
class EnteredProposal:
    proposal: ProposedDimension
    counted: bool
    """Whether it counts for the current stall cycle."""
    facts: TrialFacts


async def enter(
    tag: str, fields: Mapping[str, Any], by: str, source: str, proposals: ProposedDimensions
) -> EnteredProposal:
    """Enter a proposal, or count the listed one with the same id. In a full list another one makes room.

    Raises NotFound: no such tag. Conflict: the agent's quota is used up, or no proposal may leave the full list.
    """

    async def decide(change: Change) -> EnteredProposal:
        facts = await proposals.facts(tag, change)
        given = ProposedDimension.model_validate(
            {**fields, "proposal_id": "", "source": source, "proposed_by": by, "proposed_at": facts.now}
        )
        proposal, cycle = entered(facts, given), newest_cycle(facts)
        before = next((p for p in facts.proposals if p.proposal_id == proposal.proposal_id), None)
        check_share(facts, proposal)
        leaves = displaced(facts, proposal)
        proposals.propose(change, tag, proposal, cycle.number, cycle.at, leaves)
        counted = proposal.cycles != (before.cycles if before is not None else [])
        return EnteredProposal(proposal, counted, facts)

    return await proposals.change(decide, in_turn=tag)


Name = Annotated[StrictStr, Field(min_length=1, max_length=64)]
Setting = Annotated[Value, WithJsonSchema({})]


class ProposeDimension(Command):
    tag: TagName
    name: Name = Field(description="a constant of train.py, as it is spelt there", examples=["WARMUP_RATIO"])
    dtype: Dtype = Field(
        description="float_log: a float that is varied by factors; categorical: one of `categories`"
    )
    min: Number | None = Field(None, description="lowest value; not of a categorical", examples=[0.0])
    max: Number | None = Field(None, description="highest value; not of a categorical", examples=[0.5])
    categories: list[Value] | None = Field(
        None,
        min_length=1,
        max_length=MOST_CATEGORIES,
        description="all values of a categorical, 2 to 8",
        examples=[["none", "silu"]],
    )
    default_value: Setting = Field(description="what a train.py has today, inside the range", examples=[0.0])
    rationale: Line | None = Field(
        None, description="why varying it should improve the metric", examples=["the loss jumps at the start"]
    )
    train_py_line: Annotated[str, Field(max_length=2 * LONGEST_TEXT)] | None = Field(
        None,
        description="the line that sets it to its default; default: name = default",
        examples=["WARMUP_RATIO = 0.0"],
    )


class AskedDimension(Response):
    tag: str
    counted: bool
    """It counts for the stall cycle that goes on; false: the search does not stall, or it has counted already."""
    proposal: ProposedDimensionView


@function("dimension::propose", role="agent", writes=True)
async def propose(request: ProposeDimension, call: Call, proposals: ProposedDimensions) -> AskedDimension:
    """Propose a dimension; proposed in two stalls of the search, it is tried in 12 % of the configs.

    One that says the same, however it is written, is counted once in a stall cycle.
    """
    fields = request.model_dump(exclude={"tag", "request_id"})
    source = "operator" if call.caller.may_do_all else "agent"
    found = await enter(request.tag, fields, call.caller.name, source, proposals)
    view = proposed_view(found.proposal, found.facts)
    return AskedDimension(tag=request.tag, counted=found.counted, proposal=view)


class ListedProposals(Response):
    count: int
    proposals: list[ProposedDimensionView]
    """In the order in which they came in."""


@function("dimension::proposals", Http("GET", "/dimension_proposals"), role="viewer", is_public=True)
async def proposals(
    request: OfSwarm, dimension_proposals: ProposedDimensions, settings: Settings
) -> ListedProposals:
    """Dimensions that agents and language models propose to add to a tag, and what their trials have shown."""
    tag = request.tag_in(settings)
    try:
        facts = await dimension_proposals.facts(tag)
    except NotFound:
        if request.tag in (None, settings.swarm_tag):
            return ListedProposals(count=0, proposals=[])
        raise
    found = [proposed_view(proposal, facts) for proposal in facts.proposals]
    return ListedProposals(count=len(found), proposals=found)


class ClearProposals(OfSwarm, Command):
    """No field but the tag."""


class ClearedProposals(Response):
    ok: Literal[True] = True
    dropped: int
    """What is on trial stays."""


@function("dimension::clear_proposals", Http("DELETE", "/dimension_proposals"), role="operator", writes=True)
async def clear_proposals(
    request: ClearProposals, proposals: ProposedDimensions, settings: Settings
) -> ClearedProposals:
    """Drop the dimensions that were proposed to a tag, but for those on trial; their counts begin anew."""
    tag = request.tag_in(settings)

    async def decide(change: Change) -> ClearedProposals:
        facts = await proposals.facts(tag, change)
        dropped = [p.proposal_id for p in facts.proposals if p.state != "on_trial"]
        if not dropped:
            return change.idle(ClearedProposals(dropped=0))
        proposals.clear(change, tag, dropped)
        return ClearedProposals(dropped=len(dropped))

    try:
        return await proposals.change(decide, in_turn=tag)
    except NotFound:
        if request.tag in (None, settings.swarm_tag):
            return ClearedProposals(dropped=0)
        raise


class FollowedTrials(Response):
    adopted: list[str]
    """Dimensions that are on trial now."""
    promoted: list[str]
    reverted: list[str]
    wanted: bool
    """Further dimensions are asked for."""


@function(
    "dimension::follow_trials",
    On(
        "experiment.finished",
        "experiment.retested",
        "dimension.proposed",
        "dimension.defined",
        debounce="tag",
    ),
    role="operator",
    writes=True,
    keeps_answer=False,
)
async def follow_trials(
    request: TagCommand, proposals: ProposedDimensions, experiments: Experiments
) -> FollowedTrials:
    """Begin and end the trials of proposed dimensions, and ask for further ones where the search stalls.

    The runs that decide a trial are run again. Safe to run twice.
    """

    async def decide(change: Change) -> FollowedTrials:
        facts = await proposals.facts(request.tag, change)
        ran = await proposals.ran(facts)
        repeated = {name: await _run_again(name, experiments) for name in to_repeat(facts, ran)}
        after = followed(facts, ran, repeated)
        if after is None:
            return change.idle(FollowedTrials(adopted=[], promoted=[], reverted=[], wanted=False))
        proposals.follow(change, request.tag, after)
        return FollowedTrials(
            adopted=[*after.told.get("dimension.adopted", ())],
            promoted=[*after.told.get("dimension.promoted", ())],
            reverted=[*after.told.get("dimension.reverted", ())],
            wanted=after.wanted is not None,
        )

    return await proposals.change(decide, in_turn=request.tag)


async def _run_again(name: str, experiments: Experiments) -> RetestFacts:
    """A run with its further runs, once none is needs_repeat or there is no room for another."""
    while True:
        found = await experiments.retest_facts(name)
        if not needs_repeat(found):
            return found
        try:
            await experiments.begin_retest(retest_of(found.experiment, found.retests, found.policy))
        except BudgetExhausted as problem:  # the next result looks again
            log.warning("%s is not run again: %s", name, problem.detail)
            return found


@dataclass(frozen=True)
class DimensionDrafting:
    proposals: ProposedDimensions
    programs: Programs
    lane: PiLane


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
async def accept(
    request: DraftDimensions, stores: DimensionDrafting, settings: Settings
) -> DimensionDraftBegun:
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
    request: DraftDimensions, call: Call, stores: DimensionDrafting, author: Author, settings: Settings
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
    given = await author.write(DimensionProposals, Commission(TASK, context))
    if given is None:
        return DraftedDimensions(tag=request.tag, author=None, proposed=[])
    fields = [p.model_dump() for p in given.proposals]
    names = [await _entered(request.tag, f, author.name, stores) for f in fields]
    return DraftedDimensions(tag=request.tag, author=author.name, proposed=[n for n in names if n])


async def _entered(tag: str, fields: Mapping[str, Any], by: str, stores: DimensionDrafting) -> str | None:
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
