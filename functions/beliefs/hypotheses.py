"""Hypotheses: proposed through the gate, listed, and learned from finished runs."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from functools import partial
from typing import Any

from pydantic import Field

from functions.beliefs.rules.concluding import concerned, finished_run, learned
from functions.beliefs.rules.declaring import adapted, begun, reopened
from functions.beliefs.rules.gate import GateAnswer, Gated, gated
from functions.beliefs.rules.posterior import PosteriorPoint, trajectory
from functions.beliefs.rules.sharing import reference_config, shared_out, texts
from functions.beliefs.views import EvidenceView, HypothesisView, hypothesis_view
from functions.kernel.contract import (
    Call,
    Command,
    Http,
    OfSwarm,
    On,
    Request,
    Response,
    TagCommand,
    function,
)
from state.belief_facts import ProposalFacts
from state.change import Change
from state.errors import Conflict
from state.hypotheses import Hypotheses
from state.ids import ExperimentId, Id
from state.ids import Tag as TagName
from state.records import view_of
from state.records.hypotheses import HypothesisSource
from state.settings import Settings


class Bootstrapped(Response):
    added: list[str]
    """Ids of the new hypotheses."""


@function(
    "hypothesis::bootstrap",
    On("dimension.defined", "dimension.frozen", "dimension.unfrozen"),
    role="operator",
    writes=True,
)
async def bootstrap(request: TagCommand, hypotheses: Hypotheses) -> Bootstrapped:
    """Add "<DIM> matters" for each dimension without a hypothesis, and renew invalid reference configs."""

    async def decide(change: Change) -> Bootstrapped:
        facts = await hypotheses.all(request.tag, change)
        new, changed = begun(facts), adapted(facts)
        if not new and not changed:
            return change.idle(Bootstrapped(added=[]))
        after = {h.hypothesis_id: h for h in (*facts.open, *changed, *new)}
        populations = texts(shared_out(facts, [*after.values()], facts.best_config))
        hypotheses.propose(change, facts, new, populations, changed=changed)
        return Bootstrapped(added=[h.hypothesis_id for h in new])

    return await hypotheses.change(decide, in_turn=request.tag)


EXAMPLE = {"statement": "deeper models reach a lower loss", "config_constraint": {"DEPTH": {"min": 12}}}
Proposal = dict[str, Any]
PROPOSED = (
    "the hypothesis: a statement, and as far as they matter type, importance, config_constraint, dimensions,"
    " phase, test_spec, parent_id and rationale"
)


class TryProposal(Request):
    tag: TagName
    proposal: Proposal = Field(max_length=20, description=PROPOSED, examples=[EXAMPLE])


class GateView(Response, GateAnswer):
    hypothesis_id: str | None
    """Id of the new hypothesis."""


def gate_view(answer: GateAnswer, hypothesis_id: str | None = None) -> GateView:
    return GateView(**vars(answer), hypothesis_id=hypothesis_id)


async def looked_at(proposal: Proposal, facts: ProposalFacts, source: HypothesisSource) -> Gated:
    """The gate's decision; in a thread, because it compares a proposal with every hypothesis."""
    return await asyncio.to_thread(
        gated,
        proposal,
        facts.tag.name,
        facts.dimensions,
        [*facts.open, *facts.archived],
        reference_config(facts.dimensions, facts.best_config),
        source=source,
        now=facts.now,
    )


@function("hypothesis::gate", role="agent")
async def gate(request: TryProposal, hypotheses: Hypotheses) -> GateView:
    """Whether a hypothesis would be accepted, and if not, why; nothing is added."""
    found = await looked_at(request.proposal, await hypotheses.all(request.tag), "operator")
    return gate_view(found.answer)


# -- Adding a proposal to a tag's hypotheses, always through the gate.

MOST = 1000
"""Most hypotheses of a tag, archived ones too: each is compared with every proposal."""


def is_full(facts: ProposalFacts) -> bool:
    return len(facts.open) + len(facts.archived) >= MOST


async def entered(tag: str, proposal: Proposal, source: HypothesisSource, hypotheses: Hypotheses) -> GateView:
    """The gate's answer; an accepted proposal is stored. Raises NotFound: no such tag. Conflict: the tag is full."""

    async def decide(change: Change) -> GateView:
        facts = await hypotheses.all(tag, change)
        if is_full(facts):
            raise Conflict(f"{tag!r} has {MOST} hypotheses", hint="open another tag for further ones")
        found = await looked_at(proposal, facts, source)
        if found.hypothesis is None:
            return change.idle(gate_view(found.answer))
        hypotheses.propose(change, facts, [found.hypothesis])
        return gate_view(found.answer, found.hypothesis.hypothesis_id)

    return await hypotheses.change(decide, in_turn=tag)


class ProposeHypothesis(Command):
    tag: TagName
    proposal: Proposal = Field(max_length=20, description=PROPOSED, examples=[EXAMPLE])


@function("hypothesis::propose", role="agent", writes=True)
async def propose(request: ProposeHypothesis, call: Call, hypotheses: Hypotheses) -> GateView:
    """Add a hypothesis at P = 0.5 if the gate accepts it. It gets workers from the next allocation.

    An agent's proposal is as credible as a language model's: at first a quarter of an operator's.
    """
    source: HypothesisSource = "operator" if call.caller.may_do_all else "llm_proposed"
    return await entered(request.tag, request.proposal, source, hypotheses)


class ReopenClaims(Command):
    tag: TagName
    name: str = Field(max_length=64, description="the dimension", examples=["LEARNING_RATE"])


class ReopenedClaims(Response):
    hypotheses: list[str]
    """Ids of the claims that were irrelevant and are tested again."""


@function("hypothesis::reopen", On("dimension.unfrozen"), role="operator", writes=True)
async def reopen(request: ReopenClaims, hypotheses: Hypotheses) -> ReopenedClaims:
    """Begin the irrelevant claims about a dimension again at P = 0.5. Safe to run twice."""

    async def decide(change: Change) -> ReopenedClaims:
        facts = await hypotheses.all(request.tag, change)
        again = reopened(facts, request.name)
        if not again:
            return change.idle(ReopenedClaims(hypotheses=[]))
        populations = texts(shared_out(facts, [*facts.open, *again], facts.best_config))
        hypotheses.propose(change, facts, again, populations)
        return ReopenedClaims(hypotheses=[h.hypothesis_id for h in again])

    return await hypotheses.change(decide, in_turn=request.tag)


class Learn(Command):
    tag: TagName
    experiment_ids: list[ExperimentId] = Field(
        max_length=256, description="the runs", examples=[["swarm-17"]]
    )


class Learned(Response):
    hypotheses: list[str]
    """Ids of the changed hypotheses; empty if the runs were counted before, or are no evidence."""


@function(
    "hypothesis::learn",
    On("experiment.finished", "experiment.retested", debounce="tag"),
    role="operator",
    writes=True,
)
async def learn(request: Learn, hypotheses: Hypotheses, settings: Settings) -> Learned:
    """Update the beliefs that runs bear on, and reallocate workers when it is time; once for each run."""
    batch_every = settings.pipeline_batch_every if settings.pipeline_enabled else None

    async def learn_from(experiment_id: str, change: Change) -> Collection[str] | None:
        facts = await hypotheses.learning_facts(change, experiment_id, request.tag)
        if facts.is_learned or not facts.has_beliefs:
            return change.idle(() if facts.has_beliefs else None)
        run = finished_run(facts.run, facts)
        kept = await hypotheses.kept(request.tag, concerned(run, facts))
        learning = learned(run, facts, kept)
        hypotheses.learn(change, facts, learning, batch_every)
        return learning.changed

    changed = dict[str, None]()
    for experiment_id in request.experiment_ids:
        found = await hypotheses.change(partial(learn_from, experiment_id), in_turn=request.tag)
        if found is None:  # the tag has no beliefs
            break
        changed |= dict.fromkeys(found)
    return Learned(hypotheses=[*changed])


class ListHypotheses(OfSwarm):
    archived: bool = Field(False, description="include refuted and irrelevant ones")


class ListedHypotheses(Response):
    tag: str
    hypotheses: list[HypothesisView]
    """In the order of their proposal."""


@function("hypothesis::list", role="viewer")
async def list_hypotheses(
    request: ListHypotheses, hypotheses: Hypotheses, settings: Settings
) -> ListedHypotheses:
    """The open hypotheses of a tag with their beliefs; empty if the tag does not exist."""
    tag = request.tag_in(settings)
    facts = await hypotheses.find(tag)
    found = [] if facts is None else [*facts.open, *(facts.archived if request.archived else ())]
    return ListedHypotheses(tag=tag, hypotheses=[hypothesis_view(h) for h in found])


class ReadHypothesis(OfSwarm):
    hypothesis_id: Id = Field(description="which one; hypothesis::list shows them", examples=["hyp_0a1b2c"])


class FoundHypothesis(Response):
    hypothesis: HypothesisView
    evidence: list[EvidenceView]
    """Its newest evidence, oldest first."""


@function("hypothesis::get", Http("GET", "/api/hypothesis/{hypothesis_id}"), role="viewer")
async def get(request: ReadHypothesis, hypotheses: Hypotheses, settings: Settings) -> FoundHypothesis:
    """A hypothesis with its belief and its newest evidence."""
    found = await hypotheses.get(request.tag_in(settings), request.hypothesis_id)
    return FoundHypothesis(
        hypothesis=hypothesis_view(found), evidence=[view_of(EvidenceView, e) for e in found.evidence]
    )


class BeliefStep(Response):
    """One piece of evidence, and the belief after it."""

    evidence: EvidenceView
    at: float | None
    """When it was learned, in seconds since 1970; null: its run is not there any more."""
    after: PosteriorPoint


class Trajectory(Response):
    hypothesis_id: str
    n: int
    """Outcomes that moved the belief so far."""
    start: PosteriorPoint
    """Belief before the first step. Its `n` is above 0 where older evidence is not kept."""
    steps: list[BeliefStep]
    """The newest 50 pieces of evidence at most, oldest first."""


@function("hypothesis::history", role="viewer")
async def history(request: ReadHypothesis, hypotheses: Hypotheses, settings: Settings) -> Trajectory:
    """The belief in a hypothesis after each piece of its newest evidence, with the 90 % interval."""
    found = await hypotheses.get(request.tag_in(settings), request.hypothesis_id)
    times = await hypotheses.learned_at(found.evidence)
    start, steps = trajectory(found)
    return Trajectory(
        hypothesis_id=found.hypothesis_id,
        n=found.n_experiments,
        start=start,
        steps=[
            BeliefStep(evidence=view_of(EvidenceView, said), at=at, after=point)
            for (said, point), at in zip(steps, times, strict=True)
        ],
    )


class Scorecards(Response):
    scorecards: list[str]


@function("hypothesis::shadow_scorecards", Http("GET", "/shadow/scorecards"), role="viewer", is_public=True)
async def shadow_scorecards(request: OfSwarm) -> Scorecards:
    """Always empty: the published dashboard asks for it, and Nightjar has no shadow hypotheses."""
    return Scorecards(scorecards=[])
