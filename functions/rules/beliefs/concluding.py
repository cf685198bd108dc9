"""What a run that has ended changes of a tag's beliefs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter

from functions.rules.beliefs.evidence import is_outside, is_reference, part_of
from functions.rules.beliefs.influence import is_of_influence
from functions.rules.beliefs.learning import after
from functions.rules.beliefs.moving import Moved, moved
from functions.rules.beliefs.posterior import posterior
from functions.rules.beliefs.reprieved import Reprieved, band_of
from functions.rules.beliefs.sharing import is_due, is_over, shared_out, texts
from functions.rules.beliefs.terms import FinishedRun, RunEnd, Terms
from functions.rules.beliefs.testing import after_run, is_test, running_test
from functions.rules.beliefs.whole_range import ENOUGH_REPEATS, Blocks
from functions.rules.keeps.noise import noise_of, usual_distance
from functions.rules.keeps.verdict import score
from functions.rules.stopping.judging import REASON
from functions.rules.swarm.shapes import SwarmStrategy
from state.belief_facts import EvidenceFacts, Kept, Learning, LearningFacts
from state.records import Evidence, Experiment, Hypothesis

MOST_UNPAIRED = 50
"""Newest runs of a hypothesis that wait for a reference run."""
_EVIDENCE = TypeAdapter(list[Evidence])
_RUNS = TypeAdapter(list[FinishedRun])
_BLOCKS: TypeAdapter[Blocks] = TypeAdapter(dict[str, dict[str, tuple[int, float]]])
_STRATEGY: TypeAdapter[SwarmStrategy] = TypeAdapter(SwarmStrategy)
_VALUED = ("keep", "discard", "measured")
_CRASHED = ("crash", "timeout", "invalid")


@dataclass(frozen=True)
class ReferenceRun:
    """A run of a reference config."""

    started_at: float
    run: FinishedRun

    def may_stand_beside(self, h: Hypothesis) -> bool:
        """Whether it is one of this hypothesis: an earlier one may be what its reference config was chosen by."""
        return _is_comparable(self.run, h) and self.started_at >= h.created_at


def _is_comparable(reference: FinishedRun, h: Hypothesis) -> bool:
    """Whether it is a run of the reference config that went to its end."""
    return is_reference(reference, h) and reference.ended in ("value", "crash")


_REFERENCE = TypeAdapter(ReferenceRun)


@dataclass(frozen=True)
class _Belief:
    """A hypothesis while a run is learned from."""

    hypothesis: Hypothesis
    unpaired: tuple[FinishedRun, ...]
    used: tuple[str, ...]
    blocks: Blocks = field(default_factory=dict)
    own: Evidence | None = None
    """What the run itself said."""


def finished_run(e: Experiment, facts: EvidenceFacts) -> FinishedRun | None:
    """The run as the rules of evidence know it; None where the swarm did not choose its config."""
    if e.worker_id is None or e.is_extra or not e.config_delta:
        return None
    ended = _end(e)
    judged = None
    if ended == "value" and e.delta_bpb is not None:
        judged = score(e.delta_bpb, facts.tag.direction)
    return FinishedRun(
        e.experiment_id,
        e.worker_id,
        e.config_delta,
        _STRATEGY.validate_python(e.population_strategy or "investigate"),
        e.hypothesis_id,
        ended if judged is not None or ended != "value" else "failed",
        judged,
        e.best_key or "",
        _reprieved(e, facts),
    )


def terms_of(facts: EvidenceFacts) -> Terms:
    """What counts as evidence in the tag, as far as it is known by now."""
    noise = noise_of(facts.noise.squares, facts.noise.df)
    given = facts.policy.belief
    return Terms(
        policy=given.evidence,
        sigma=noise.sigma if noise else None,
        usual_distance=usual_distance(noise) if noise and noise.df >= ENOUGH_REPEATS else None,
        repeats=noise.df if noise else 0,
        dimensions=facts.dimensions,
        dead_zone=given.dead_zone,
        equivalence_margin=given.equivalence_margin,
        workers=facts.active_workers,
    )


def concerned(run: FinishedRun | None, facts: LearningFacts) -> list[str]:
    """The hypotheses that a run says something of, or is compared for."""
    terms = terms_of(facts)
    if run is None:
        named = facts.run.hypothesis_id if of_agent(facts.run) is not None else None
        return [h.hypothesis_id for h in facts.open if h.hypothesis_id == named]
    said = (
        h for h in facts.open if _is_of_test(run, h) or part_of(run, h, terms) != "none" or is_outside(run, h)
    )
    return [h.hypothesis_id for h in said]


def learned(run: FinishedRun | None, facts: LearningFacts, kept: Mapping[str, Kept]) -> Learning:
    """What a run changes; `kept` is of the hypotheses that are `concerned`."""
    terms = terms_of(facts)
    before = {h.hypothesis_id: h for h in facts.open}
    references = references_of(facts)
    beliefs = (
        {name: _named(before[name], kept[name], facts) for name in kept}
        if run is None
        else {name: _learned(run, before[name], kept[name], references, facts, terms) for name in kept}
    )
    opened = [beliefs[name].hypothesis if name in beliefs else h for name, h in before.items()]
    archived = [name for name, b in beliefs.items() if is_over(b.hypothesis)]
    changed = {name: (b.hypothesis, _kept(b)) for name, b in beliefs.items()}
    populations = None
    if is_due(facts, opened):
        populations = texts(shared_out(facts, opened, facts.best_config))
    return Learning(
        changed=changed,
        archived=archived,
        reference=_reference_text(run, facts),
        populations=populations,
        reprieved=_sums(facts, beliefs.values()),
        believed={
            name: _news(b.hypothesis, before[name])
            for name, b in beliefs.items()
            if b.hypothesis.status != before[name].status
        },
        settled={
            name: _news(b.hypothesis, before[name])
            for name, b in beliefs.items()
            if b.hypothesis.settled != before[name].settled
        },
    )


def of_agent(e: Experiment) -> Evidence | None:
    """What an agent's experiment says of the hypothesis that it names; None: it names none, or has no result.

    It wins if it beats the best before it. All are compared with few bests, so they enter no e-value.
    """
    if e.worker_id is not None or e.hypothesis_id is None or e.retest_of is not None:
        return None
    said: dict[str, Any] = {"experiment_id": e.experiment_id, "worker_id": e.agent, "is_guarded": False}
    if e.status in _CRASHED:
        return Evidence(**said, outcome=0.0, against="crash")
    if e.status not in _VALUED or e.delta is None:
        return None
    outcome = None if e.delta == 0 else float(e.delta > 0)
    return Evidence(**said, outcome=outcome, against="baseline", delta=-e.delta)


def _named(h: Hypothesis, kept: Kept, facts: LearningFacts) -> _Belief:
    """One hypothesis after an agent's experiment that names it."""
    h, said = with_evidence(h, kept), of_agent(facts.run)
    return _Belief(h if said is None else after(h, said, facts.now), (), (), own=said)


def with_evidence(h: Hypothesis, kept: Kept) -> Hypothesis:
    """A hypothesis with its newest evidence."""
    evidence = _EVIDENCE.validate_json(kept.evidence) if kept.evidence else []
    return h.model_copy(update={"evidence": evidence})


def standing(h: Hypothesis, kept: Kept, references: Sequence[ReferenceRun]) -> Moved:
    """A hypothesis before its next run: with its evidence, its runs that wait, and the references not yet used."""
    used = frozenset(json.loads(kept.used) if kept.used else ())
    waiting = _RUNS.validate_json(kept.unpaired) if kept.unpaired else []
    unused = [r.run for r in references if r.may_stand_beside(h) and r.run.experiment_id not in used]
    return Moved(with_evidence(h, kept), waiting, unused, _blocks(kept))


def references_of(facts: EvidenceFacts) -> list[ReferenceRun]:
    """The runs of reference configs, oldest first."""
    return [_REFERENCE.validate_json(text) for text in facts.references]


def _learned(
    run: FinishedRun,
    h: Hypothesis,
    kept: Kept,
    references: Sequence[ReferenceRun],
    facts: LearningFacts,
    terms: Terms,
) -> _Belief:
    """One hypothesis after the run: what it says by itself, and what pairs it makes possible."""
    made = [*references, _referring(facts, run)] if part_of(run, h, terms) == "reference" else references
    before = standing(h, kept, made)
    if _is_of_test(run, h):
        return _tested(run, before.hypothesis, before.waiting, facts)
    used: list[str] = json.loads(kept.used) if kept.used else []
    move = moved(run, before, terms, facts.now)
    left = {r.experiment_id for r in move.unused}
    used += [r.experiment_id for r in before.unused if r.experiment_id not in left]
    still = {r.run.experiment_id for r in made}
    return _Belief(
        move.hypothesis,
        tuple(move.waiting[-MOST_UNPAIRED:]),
        tuple(n for n in used if n in still),
        move.blocks,
        move.own,
    )


def _blocks(kept: Kept) -> Blocks:
    return _BLOCKS.validate_json(kept.blocks) if kept.blocks else {}


def _is_of_test(run: FinishedRun, h: Hypothesis) -> bool:
    return is_test(h) and run.hypothesis_id == h.hypothesis_id


def _tested(run: FinishedRun, h: Hypothesis, before: Sequence[FinishedRun], facts: LearningFacts) -> _Belief:
    """One hypothesis under test after one of its runs."""
    test = running_test(h.test_spec, h.reference_config, h.config_constraint, facts.dimensions, facts.policy)
    if test is None:
        return _Belief(h, tuple(before), ())
    h, runs = after_run(h, run, before, test, facts.now)
    return _Belief(h, tuple(runs), ())


def _referring(facts: LearningFacts, run: FinishedRun) -> ReferenceRun:
    return ReferenceRun(facts.run.started_at or facts.run.registered_at, run)


def _reference_text(run: FinishedRun | None, facts: LearningFacts) -> str | None:
    """The run as it is kept where runs may be compared with it."""
    if run is None or not any(_is_comparable(run, h) for h in facts.open):
        return None
    return _REFERENCE.dump_json(_referring(facts, run)).decode()


def _kept(b: _Belief) -> Kept:
    return Kept(
        evidence=_EVIDENCE.dump_json(b.hypothesis.evidence).decode(),
        unpaired=_RUNS.dump_json(list(b.unpaired)).decode() if b.unpaired else None,
        used=json.dumps(b.used) if b.used else None,
        blocks=_BLOCKS.dump_json(b.blocks).decode() if b.blocks else None,
    )


def _end(e: Experiment) -> RunEnd:
    if e.status in _VALUED:
        return "value"
    if e.status in _CRASHED:
        return "crash"
    return "stopped" if e.status == "stopped" and e.stop_reason == REASON else "failed"


# -- runs that went on where others were stopped


def _place(bucket: str, rank: float) -> str:
    return f"{bucket}:{band_of(rank)}"


def _reprieved(e: Experiment, facts: EvidenceFacts) -> Reprieved | None:
    """Those that stood where this one was stopped, and went on."""
    if e.status != "stopped" or not e.ranked:
        return None
    bucket = max(e.ranked, key=float)
    rank, _ = e.ranked[bucket]
    return _sum(facts.reprieved.get(_place(bucket, rank)))


def _sums(facts: LearningFacts, beliefs: Iterable[_Belief]) -> dict[str, str]:
    """The sums of the places where it might have been stopped and went on, with the mean of its outcomes, once.

    Those for claims of influence, of which a stopped run says nothing, are left out.
    """
    said = [b.own for b in beliefs if not is_of_influence(b.hypothesis)]
    outcomes = [e.outcome for e in said if e is not None and e.outcome is not None]
    passed = sorted((facts.run.ranked or {}).items(), key=lambda place: float(place[0]))
    if facts.run.status == "stopped":
        passed = passed[:-1]
    if not outcomes:
        return {}
    mean, sums = sum(outcomes) / len(outcomes), dict[str, str]()
    for bucket, (rank, chance) in passed:
        if 0 < chance < 1:
            place = _place(bucket, rank)
            after_it = _sum(facts.reprieved.get(place)).with_(mean, chance)
            sums[place] = json.dumps([after_it.wins, after_it.weight])
    return sums


def _sum(text: str | None) -> Reprieved:
    return Reprieved(*json.loads(text)) if text else Reprieved()


def _news(h: Hypothesis, before: Hypothesis) -> dict[str, Any]:
    """What the event of a change says."""
    believed = posterior(h)
    return {
        "hypothesis_id": h.hypothesis_id,
        "statement": h.statement,
        "status": h.status,
        "status_before": before.status,
        "settled": h.settled,
        "posterior": round(believed.posterior_mean, 4),
        "support_probability": believed.support_probability,
        "refute_probability": believed.refute_probability,
        "n_experiments": h.n_experiments,
    }
