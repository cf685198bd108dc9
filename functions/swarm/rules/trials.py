"""Trials of proposed dimensions: which one begins, and how one ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from functions.swarm.rules.dimensions import Definition, definition_events, with_one
from functions.swarm.rules.trial_proposals import (
    MOST_TRIALS,
    cycle_of,
    is_asked_for,
    line_of,
    newest_cycle,
    on_trial,
    problems,
)
from functions.swarm.rules.trial_verdicts import DimensionTrial, Repeated, runs_to_repeat, verdict
from state.records import Dimension, ProposedDimension
from state.swarm_facts import Following, TrialFacts, TriedRun

BY = "nightjar"
SIGNALS = 2
"""Stall cycles in which a dimension has to be proposed before its trial."""

Event = Literal["dimension.adopted", "dimension.promoted", "dimension.reverted"]


@dataclass(frozen=True)
class Eligibility:
    """Whether a proposal may be adopted."""

    is_eligible: bool
    """It is adopted once the search stalls and no trial runs."""
    reason: str
    """Why it is not eligible, or what its trial has shown."""


def eligibility_of(proposal: ProposedDimension, facts: TrialFacts) -> Eligibility:
    if proposal.state == "on_trial":
        since = facts.tag.results - (proposal.adopted_results or 0)
        return Eligibility(False, f"on trial since {since} results; runs that began before it do not count")
    if proposal.state != "listed":
        return Eligibility(False, proposal.reason or proposal.state)
    found = [*problems(proposal, facts.dimensions)]
    if found:
        return Eligibility(False, "; ".join(found))
    lacks = SIGNALS - len(proposal.cycles)
    if lacks > 0:
        return Eligibility(
            False, f"to be proposed in {lacks} more stall {'cycle' if lacks == 1 else 'cycles'}"
        )
    if facts.policy.canaries == "off":
        return Eligibility(False, "the tag's policy adopts none (canaries = off)")
    return Eligibility(True, "it is adopted once the search stalls and a place for a trial is free")


def to_repeat(facts: TrialFacts, ran: Sequence[TriedRun]) -> list[str]:
    """Runs that must be repeated to decide a trial now; `ran` as in `followed`."""
    by_name = {d.name: d for d in facts.dimensions if d.on_trial}
    on_trial = [p for p in facts.proposals if p.state == "on_trial" and p.name in by_name]
    return [name for p in on_trial for name in runs_to_repeat(DimensionTrial(p, by_name[p.name], facts, ran))]


def followed(facts: TrialFacts, ran: Sequence[TriedRun], repeated: Repeated) -> Following | None:
    """Changes of proposals; None: none. `ran`: runs since the oldest trial; `repeated`: those `to_repeat` names."""
    dimensions = [*facts.dimensions]
    change = _Change(dimensions, Definition(dimensions))
    for proposal in facts.proposals:
        if proposal.state == "on_trial":
            _judge(proposal, facts, ran, repeated, change)
    is_stalled = cycle_of(facts) is not None
    if is_stalled:
        for proposal in _adopted(facts, change):
            _adopt(proposal, facts, change)
    cycle = newest_cycle(facts)
    after = [change.proposals.get(p.proposal_id, p) for p in facts.proposals]
    why = is_asked_for(replace(facts, proposals=after, dimensions=change.dimensions))
    asked = cycle.number if is_stalled else 0
    if not change.proposals and why is None and cycle.number == facts.cycle:
        return None
    defined, _ = definition_events(change.made, facts.tag.name, by=BY, profile=None)
    return Following(
        proposals=[*change.proposals.values()],
        cycle=cycle.number,
        cycle_at=cycle.at,
        wanted=None if why is None else {"why": why, "results": facts.tag.results, "cycle": asked},
        dimensions=dimensions if change.made.changes else None,
        defined=defined,
        told=change.told,
    )


# -- one proposal


@dataclass
class _Change:
    """The changes so far."""

    dimensions: list[Dimension]
    made: Definition
    proposals: dict[str, ProposedDimension] = field(default_factory=dict)
    told: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)

    def tell(self, event: Event, proposal: ProposedDimension, **data: Any) -> None:
        said = {"proposal_id": proposal.proposal_id, "name": proposal.name, **data}
        self.told.setdefault(event, {})[proposal.name] = said


def _adopted(facts: TrialFacts, change: _Change) -> Iterator[ProposedDimension]:
    """Proposals whose trial begins now, oldest first, up to MOST_TRIALS trials."""
    places = MOST_TRIALS - sum(d.on_trial for d in change.dimensions)
    for proposal in facts.proposals:
        here = replace(facts, dimensions=change.dimensions)
        if places > 0 and _best_so_far(facts) is not None and eligibility_of(proposal, here).is_eligible:
            places -= 1
            yield proposal


def _adopt(proposal: ProposedDimension, facts: TrialFacts, change: _Change) -> None:
    dimension = on_trial(proposal)
    change.dimensions.append(dimension)
    change.made.added.append(dimension.name)
    change.proposals[proposal.proposal_id] = proposal.model_copy(
        update={
            "state": "on_trial",
            "adopted_at": facts.now,
            "adopted_results": facts.tag.results,
            "adopted_number": facts.tag.last_number,
            "best_before": _best_so_far(facts),
        }
    )
    change.tell(
        "dimension.adopted",
        proposal,
        results=facts.tag.results,
        number=facts.tag.last_number,
        share=dimension.canary_prob,
        default_value=dimension.default_value,
        train_py_line=line_of(proposal),
    )


def _judge(
    proposal: ProposedDimension,
    facts: TrialFacts,
    ran: Sequence[TriedRun],
    repeated: Repeated,
    change: _Change,
) -> None:
    """End the trial of a proposal if it is decided."""
    dimension = next((d for d in change.dimensions if d.name == proposal.name), None)
    if dimension is None or not dimension.on_trial:
        did = "removed" if dimension is None else "froze" if dimension.frozen else "defined"
        _end(proposal, facts, change, state="ended", reason=f"an organiser {did} the dimension")
        return
    trial = DimensionTrial(proposal, dimension, facts, ran)
    found = verdict(trial, repeated)
    if found is None:
        return
    measured = {"varied": found.varied, "gain": found.gain}
    if found.is_promoted:
        free = {"is_canary": False, "canary_prob": None, "importance": None, "n_samples": 0}
        change.dimensions[:] = with_one(change.dimensions, dimension.model_copy(update=free))
        change.made.changed.append(dimension.name)
    else:
        change.dimensions[:] = [d for d in change.dimensions if d.name != dimension.name]
        change.made.removed.append(dimension.name)
    state = "promoted" if found.is_promoted else "reverted"
    event: Event = "dimension.promoted" if found.is_promoted else "dimension.reverted"
    _end(proposal, facts, change, state=state, reason=found.reason, **measured)
    at = {"results": facts.tag.results, "number": facts.tag.last_number}
    change.tell(event, proposal, **at, reason=found.reason, **measured)


def _best_so_far(facts: TrialFacts) -> float | None:
    """The value to beat: the tag's best, else the unchanged train.py (delta 0); None if unknown."""
    if facts.best is not None:
        return facts.best.val_bpb
    return 0.0 if facts.policy.compare_by == "delta" else None


def _end(proposal: ProposedDimension, facts: TrialFacts, change: _Change, **found: Any) -> None:
    judged = {"judged_at": facts.now, "judged_results": facts.tag.results}
    change.proposals[proposal.proposal_id] = proposal.model_copy(update={**judged, **found})
