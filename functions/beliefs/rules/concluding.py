"""Changes of a tag's beliefs after a finished run, from what the lab has stored to what it stores next."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter

from functions.beliefs.rules.evidence import is_outside, is_reference, part_of
from functions.beliefs.rules.learning import BeliefState, after, after_run
from functions.beliefs.rules.posterior import posterior
from functions.beliefs.rules.protocols import after_test_run, is_test, running_test
from functions.beliefs.rules.sharing import is_due, is_over, shared_out, texts
from functions.beliefs.rules.terms import (
    BeliefTerms,
    FinishedRun,
    RunEnd,
    Survivors,
    band_of,
    is_of_influence,
)
from functions.beliefs.rules.whole_range import ENOUGH_REPEATS, Blocks
from functions.runs.rules.stopping import REASON
from functions.swarm.rules.shapes import SwarmStrategy
from functions.trust.rules.noise import usual_distance
from state.belief_facts import EvidenceFacts, Learning, LearningFacts, StoredEvidence
from state.records import Evidence, Experiment, Hypothesis, score

MOST_UNPAIRED = 50
"""Runs of a hypothesis that may wait for a reference run; older ones are dropped."""
_EVIDENCE = TypeAdapter(list[Evidence])
_RUNS = TypeAdapter(list[FinishedRun])
_BLOCKS: TypeAdapter[Blocks] = TypeAdapter(dict[str, dict[str, tuple[int, float]]])
_STRATEGY: TypeAdapter[SwarmStrategy] = TypeAdapter(SwarmStrategy)
_VALUED = ("keep", "discard", "measured")
_CRASHED = ("crash", "timeout", "invalid")


@dataclass(frozen=True)
class ReferenceRun:
    started_at: float
    run: FinishedRun


def _is_comparable(reference: FinishedRun, h: Hypothesis) -> bool:
    """Whether it is a run of the reference config that was not stopped early."""
    return is_reference(reference, h) and reference.ended in ("value", "crash")


_REFERENCE = TypeAdapter(ReferenceRun)


def finished_run(e: Experiment, facts: EvidenceFacts) -> FinishedRun | None:
    """The run as a value for the rules of evidence; None where the swarm did not choose its config."""
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
        _survivors(e, facts),
    )


def terms_of(facts: EvidenceFacts) -> BeliefTerms:
    """The tag's terms of evidence, with the noise that is known by now."""
    noise = facts.noise.noise
    return BeliefTerms(
        policy=facts.policy.belief.evidence,
        sigma=noise.sigma if noise else None,
        usual_distance=usual_distance(noise) if noise and noise.df >= ENOUGH_REPEATS else None,
        repeats=noise.df if noise else 0,
        dimensions=facts.dimensions,
        workers=facts.active_workers,
    )


def concerned(run: FinishedRun | None, facts: LearningFacts) -> list[str]:
    """Ids of the hypotheses that a run may change."""
    terms = terms_of(facts)
    if run is None:
        named = facts.run.hypothesis_id if of_agent(facts.run) is not None else None
        return [h.hypothesis_id for h in facts.open if h.hypothesis_id == named]
    return [
        h.hypothesis_id
        for h in facts.open
        if _is_of_test(run, h) or part_of(run, h, terms) != "none" or is_outside(run, h)
    ]


def learned(run: FinishedRun | None, facts: LearningFacts, kept: Mapping[str, StoredEvidence]) -> Learning:
    """The changes after a run. `kept` is what is stored of the `concerned` hypotheses."""
    terms = terms_of(facts)
    before = {h.hypothesis_id: h for h in facts.open}
    references = references_of(facts)
    if run is None:
        beliefs = {name: _after_agents_run(before[name], kept[name], facts) for name in kept}
    else:
        beliefs = {name: _after_run(run, before[name], kept[name], references, facts, terms) for name in kept}
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
        reprieved=_new_survivors(facts, beliefs.values()),
        believed={n: _news(h, before[n]) for n, (h, _) in changed.items() if h.status != before[n].status},
        settled={n: _news(h, before[n]) for n, (h, _) in changed.items() if h.settled != before[n].settled},
    )


def of_agent(e: Experiment) -> Evidence | None:
    """The evidence of an agent's experiment for the hypothesis that it names; None: it names none, or has no result.

    It wins if it beats the best before it. Many share one best, so they enter no e-value.
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


def _after_agents_run(h: Hypothesis, kept: StoredEvidence, facts: LearningFacts) -> BeliefState:
    """One hypothesis after an agent's experiment that names it."""
    h, said = with_evidence(h, kept), of_agent(facts.run)
    return BeliefState(h if said is None else after(h, said, facts.now), own=said)


def with_evidence(h: Hypothesis, kept: StoredEvidence) -> Hypothesis:
    evidence = _EVIDENCE.validate_json(kept.evidence) if kept.evidence else []
    return h.model_copy(update={"evidence": evidence})


def belief_state(h: Hypothesis, kept: StoredEvidence, references: Sequence[ReferenceRun]) -> BeliefState:
    """A hypothesis before its next run, with what is stored of it."""
    used = json.loads(kept.used) if kept.used else []
    used_ids = frozenset(used)
    return BeliefState(
        with_evidence(h, kept),
        waiting=_RUNS.validate_json(kept.unpaired) if kept.unpaired else [],
        # a run that is older than the hypothesis may have led to the choice of its reference config
        unused=[
            r.run
            for r in references
            if _is_comparable(r.run, h)
            and r.started_at >= h.created_at
            and r.run.experiment_id not in used_ids
        ],
        used=used,
        blocks=_BLOCKS.validate_json(kept.blocks) if kept.blocks else {},
    )


def references_of(facts: EvidenceFacts) -> list[ReferenceRun]:
    """The runs of reference configs, oldest first."""
    return [_read_reference(text) for text in facts.references]


@lru_cache(maxsize=2048)
def _read_reference(text: str) -> ReferenceRun:
    """A stored reference run. Every finished run needs all of a tag, and few are new."""
    return _REFERENCE.validate_json(text)


def _after_run(
    run: FinishedRun,
    h: Hypothesis,
    kept: StoredEvidence,
    references: Sequence[ReferenceRun],
    facts: LearningFacts,
    terms: BeliefTerms,
) -> BeliefState:
    """One hypothesis after a run of the swarm, as it is stored next."""
    if part_of(run, h, terms) == "reference":
        references = [*references, _reference_run(facts, run)]
    before = belief_state(h, kept, references)
    if _is_of_test(run, h):
        return _tested(run, before, facts)
    found = after_run(run, before, terms, facts.now)
    known = {r.run.experiment_id for r in references}
    return replace(
        found, waiting=found.waiting[-MOST_UNPAIRED:], used=[name for name in found.used if name in known]
    )


def _is_of_test(run: FinishedRun, h: Hypothesis) -> bool:
    return is_test(h) and run.hypothesis_id == h.hypothesis_id


def _tested(run: FinishedRun, before: BeliefState, facts: LearningFacts) -> BeliefState:
    """A hypothesis under test after one of its runs."""
    h = before.hypothesis
    test = running_test(h.test_spec, h.reference_config, h.config_constraint, facts.dimensions)
    if test is None:
        return BeliefState(h, before.waiting)
    return BeliefState(*after_test_run(h, run, before.waiting, test, facts.now))


def _reference_run(facts: LearningFacts, run: FinishedRun) -> ReferenceRun:
    return ReferenceRun(facts.run.started_at or facts.run.registered_at, run)


def _reference_text(run: FinishedRun | None, facts: LearningFacts) -> str | None:
    """The run as it is stored, where it is a reference run of an open hypothesis; else None."""
    if run is None or not any(_is_comparable(run, h) for h in facts.open):
        return None
    return _REFERENCE.dump_json(_reference_run(facts, run)).decode()


def _kept(b: BeliefState) -> StoredEvidence:
    return StoredEvidence(
        evidence=_EVIDENCE.dump_json(b.hypothesis.evidence).decode(),
        unpaired=_RUNS.dump_json(list(b.waiting)).decode() if b.waiting else None,
        used=json.dumps(list(b.used)) if b.used else None,
        blocks=_BLOCKS.dump_json(b.blocks).decode() if b.blocks else None,
    )


def _end(e: Experiment) -> RunEnd:
    if e.status in _VALUED:
        return "value"
    if e.status in _CRASHED:
        return "crash"
    return "stopped" if e.status == "stopped" and e.stop_reason == REASON else "failed"


# -- survivors of early stopping


def _place(bucket: str, rank: float) -> str:
    return f"{bucket}:{band_of(rank)}"


def _survivors(e: Experiment, facts: EvidenceFacts) -> Survivors:
    """The survivors of the bucket and rank band in which a run was stopped."""
    if e.status != "stopped" or not e.ranked:
        return Survivors()
    bucket = max(e.ranked, key=float)
    rank, _ = e.ranked[bucket]
    return _stored_survivors(facts.reprieved.get(_place(bucket, rank)))


def _new_survivors(facts: LearningFacts, beliefs: Iterable[BeliefState]) -> dict[str, str]:
    """The sums of the places that the run has survived, with the mean of its outcomes.

    Claims of influence are left out: a stopped run is no evidence for them.
    """
    said = [b.own for b in beliefs if not is_of_influence(b.hypothesis)]
    outcomes = [e.outcome for e in said if e is not None and e.outcome is not None]
    survived = sorted((facts.run.ranked or {}).items(), key=lambda place: float(place[0]))
    if facts.run.status == "stopped":
        survived = survived[:-1]
    if not outcomes:
        return {}
    mean, sums = sum(outcomes) / len(outcomes), dict[str, str]()
    for bucket, (rank, chance) in survived:
        if 0 < chance < 1:
            place = _place(bucket, rank)
            found = _stored_survivors(facts.reprieved.get(place)).with_(mean, chance)
            sums[place] = json.dumps([found.wins, found.weight])
    return sums


def _stored_survivors(text: str | None) -> Survivors:
    return Survivors(*json.loads(text)) if text else Survivors()


def _news(h: Hypothesis, before: Hypothesis) -> dict[str, Any]:
    """Data of the event of a change."""
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
