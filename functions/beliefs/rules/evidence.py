"""Evidence of a finished run for a hypothesis, and the run that it is compared with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from functions.beliefs.rules.terms import (
    COMPARED,
    BeliefTerms,
    EvidencePolicy,
    FinishedRun,
    is_of_influence,
    outcome_of_distance,
)
from functions.swarm.rules.dimensions import same
from state.records import Evidence, Hypothesis, Value

# -- Evidence of a finished run for a hypothesis: a win, a loss, something between, or none.
#
# A win is a lower value, a loss a higher one. A claim of influence wins by a large enough difference from a
# reference run (`functions/beliefs/rules/terms.py`). A tie is no outcome, as in the sign test (Dixon and Mood,
# J. Am. Stat. Assoc. 41, 1946). It still counts as a contrast: a dimension that changes nothing shows by its ties.

ARCHIVED = frozenset({"refuted", "irrelevant"})
"""Verdicts after which a hypothesis has no workers, and runs are no evidence for it any more."""
SHARE = 0.2
"""Largest share of recent evidence that one worker may contribute without reference runs of its own. A worker that
always wins then raises the win share of an even claim to 0.6 at most, which decides nothing."""
FREE = 2
"""Runs without a reference run of its own that each worker may contribute, whatever the share."""

Part = Literal["reference", "candidate", "counts", "none"]


def part_of(run: FinishedRun, hypothesis: Hypothesis, terms: BeliefTerms) -> Part:
    """The role of a run in the evidence for a hypothesis.

    `reference`: a run of its reference config. One candidate is compared with it.
    `candidate`: it waits for a reference run.
    `counts`: it is evidence without a reference run.
    `none`: it is no evidence.
    """
    if run.ended == "failed" or hypothesis.phase == "validation" or hypothesis.settled in ARCHIVED:
        return "none"
    return EVIDENCE_RULES[terms.policy].part_of(run, hypothesis)


def outcome_of(
    run: FinishedRun, hypothesis: Hypothesis, terms: BeliefTerms, reference: FinishedRun | None = None
) -> Evidence | None:
    """The evidence of a run for a hypothesis; a candidate is compared with `reference`.

    None: it is no evidence, or its worker has contributed its share (SHARE).
    """
    part = part_of(run, hypothesis, terms)
    if part == "candidate" and reference is not None:
        return _beside(run, reference, hypothesis, terms)
    if part != "counts" or not _may_say_more(run.worker_id, hypothesis, terms):
        return None
    return EVIDENCE_RULES[terms.policy].alone(run, hypothesis)


class Matched:
    """Compares each run with one run of the claim's reference config (`functions/beliefs/rules/evidence.py`).

    Each reference run is used once: outcomes that share one would all depend on its luck. The run may differ from
    the reference config in the claim's dimensions only, and must honour its constraint. Other dimensions would decide
    the claim otherwise. Runs that led to the choice of the reference config were lucky, so they are no reference
    runs. A stopped run is none either: only the better ones would remain.

    Runs of other strategies than COMPARED look for the best config. They are compared with their worker's baseline,
    for the hypothesis of their own population. Once the search works, most of them win, whatever is claimed. So they
    change the effect only, never the belief.
    """

    def part_of(self, run: FinishedRun, hypothesis: Hypothesis) -> Part:
        """The role of a run for an open claim; the run has not failed."""
        if is_reference(run, hypothesis):
            return "none" if run.ended == "stopped" else "reference"
        if run.strategy in COMPARED:
            if not is_matched(run, hypothesis):
                return "none"
            return "counts" if run.ended == "stopped" else "candidate"
        is_own = run.hypothesis_id == hypothesis.hypothesis_id
        return "counts" if is_own and _bears_on(run, hypothesis) else "none"

    def alone(self, run: FinishedRun, hypothesis: Hypothesis) -> Evidence | None:
        """The evidence of a run that `counts` without a reference run."""
        if run.judged is not None:
            return _alone(run, None, "baseline", is_guarded=False)
        # runs of COMPARED get here only if they were stopped
        if run.strategy in COMPARED and not is_of_influence(hypothesis):
            return _alone(run, run.survivors.share, "stopped", is_guarded=True)
        return None


class AgainstBaselines:
    """The published rule: compares each run with its worker's baseline, for every hypothesis that it bears on.

    A worker's runs share its baseline. So only one of them in the newest evidence enters an e-value.
    """

    def part_of(self, run: FinishedRun, hypothesis: Hypothesis) -> Part:
        return "counts" if _bears_on(run, hypothesis) else "none"

    def alone(self, run: FinishedRun, hypothesis: Hypothesis) -> Evidence | None:
        is_guarded = not any(e.is_guarded and e.worker_id == run.worker_id for e in hypothesis.evidence)
        if run.judged is not None:
            return _alone(run, _outcome(run.judged), "baseline", is_guarded=is_guarded)
        if run.ended == "stopped":
            return _alone(run, run.survivors.share, "stopped", is_guarded=is_guarded)
        if not hypothesis.config_constraint:
            return None
        return _alone(run, 0.0, "crash", is_guarded=is_guarded)


EVIDENCE_RULES: Mapping[EvidencePolicy, Matched | AgainstBaselines] = {
    "matched": Matched(),
    "baseline": AgainstBaselines(),
}


def is_reference(run: FinishedRun, hypothesis: Hypothesis) -> bool:
    return bool(hypothesis.reference_config) and not _apart(run.config, hypothesis.reference_config)


def is_matched(run: FinishedRun, hypothesis: Hypothesis) -> bool:
    """Whether it differs from the reference config in the claim's dimensions only, and honours its constraint."""
    apart = _apart(run.config, hypothesis.reference_config)
    return bool(apart) and apart <= about(hypothesis) and honours(run.config, hypothesis.config_constraint)


def is_outside(run: FinishedRun, hypothesis: Hypothesis) -> bool:
    """Whether it violates the constraint, but differs from the reference config in the claim's dimensions only."""
    return (
        bool(hypothesis.config_constraint)
        and run.ended == "value"
        and _apart(run.config, hypothesis.reference_config) <= about(hypothesis)
        and not honours(run.config, hypothesis.config_constraint)
    )


def comparable(run: FinishedRun, reference: FinishedRun, hypothesis: Hypothesis) -> bool:
    """Whether two runs ran under the same conditions and differ in the hypothesis' dimensions only."""
    return run.key == reference.key and _apart(run.config, reference.config) <= about(hypothesis)


def about(hypothesis: Hypothesis) -> frozenset[str]:
    """The hypothesis' dimensions: those that it names, and those of its constraint."""
    return frozenset(hypothesis.dimensions) | hypothesis.config_constraint.keys()


def honours(config: Mapping[str, Value], constraint: Mapping[str, Any]) -> bool:
    """Whether the constraint allows the config's values."""
    return all(name in config and _allows(allowed, config[name]) for name, allowed in constraint.items())


def _beside(
    run: FinishedRun, reference: FinishedRun, hypothesis: Hypothesis, terms: BeliefTerms
) -> Evidence | None:
    """The evidence of a pair. A crash is worse than any value; two crashes are no evidence.

    For a claim of influence a crash is no evidence, because it has no known distance.
    """
    pair: dict[str, Any] = {
        "experiment_id": run.experiment_id,
        "worker_id": run.worker_id,
        "reference_id": reference.experiment_id,
        "reference_worker_id": reference.worker_id,
    }
    has_crashed = run.judged is None or reference.judged is None
    if has_crashed and is_of_influence(hypothesis):
        return None
    if run.judged is None and reference.judged is None:
        return None
    if run.judged is None:
        return Evidence(**pair, outcome=0.0, against="crash")
    if reference.judged is None:
        return Evidence(**pair, outcome=1.0, against="reference", delta=run.judged)
    contrast = run.judged - reference.judged
    outcome = outcome_of_distance(contrast, terms) if is_of_influence(hypothesis) else _outcome(contrast)
    return Evidence(**pair, outcome=outcome, against="reference", delta=run.judged, contrast=contrast)


def _alone(
    run: FinishedRun,
    outcome: float | None,
    against: Literal["baseline", "stopped", "crash"],
    *,
    is_guarded: bool,
) -> Evidence:
    return Evidence(
        experiment_id=run.experiment_id,
        worker_id=run.worker_id,
        is_guarded=is_guarded,
        outcome=outcome,
        against=against,
        delta=run.judged,
    )


def _outcome(difference: float) -> float | None:
    """1 for a win, 0 for a loss, None for a tie."""
    return None if difference == 0 else float(difference < 0)


def _may_say_more(worker_id: str, hypothesis: Hypothesis, terms: BeliefTerms) -> bool:
    """Whether the worker may contribute one more run without a reference run of its own.

    With fewer than five workers, each has an equal share.
    """
    said = sum(e.worker_id == worker_id and e.reference_worker_id != worker_id for e in hypothesis.evidence)
    share = max(SHARE, 1 / max(terms.workers, 1))
    return said < max(FREE, share * (len(hypothesis.evidence) + 1))


def _bears_on(run: FinishedRun, hypothesis: Hypothesis) -> bool:
    """Whether it honours the constraint, or, without one, varies one of the named dimensions."""
    if hypothesis.config_constraint:
        return honours(run.config, hypothesis.config_constraint)
    return not about(hypothesis).isdisjoint(_apart(run.config, hypothesis.reference_config))


def _apart(config: Mapping[str, Value], reference: Mapping[str, Value]) -> frozenset[str]:
    """The dimensions in which a config differs from a reference config.

    A dimension that was added later is missing there; `comparable` compares it with the reference runs.
    """
    return frozenset(
        name for name, value in reference.items() if name not in config or not same(config[name], value)
    )


def _allows(allowed: Any, value: Value) -> bool:
    if isinstance(allowed, Mapping):
        if isinstance(value, bool | str):
            return False
        return bool(allowed.get("min", value) <= value <= allowed.get("max", value))
    choices = allowed if isinstance(allowed, Sequence) and not isinstance(allowed, str) else [allowed]
    return any(same(each, value) for each in choices)


# -- Pairs of a run and the reference run that it is compared with.
#
# A worker's baseline is measured once, and its error is in all of the worker's deltas. The error cancels beside a
# reference run of the same worker, so a run waits for one of these. Beside another worker's reference run it does
# not cancel: all pairs of a worker with a lucky baseline would go the same way.
#
# Workers come and go, so many runs may wait. Then the oldest one is compared with another worker's reference run.
# In recent evidence each worker is in at most one such pair. So no two of them share a baseline, and for a claim
# that is not true each is won with probability 1/2, whatever the past. This does not hold for claims of influence,
# which win by a distance in either direction. Their runs are never compared with another worker's.

PATIENCE = 8
"""Runs that may wait before the oldest one is compared with another worker's reference run."""

Pair = tuple[FinishedRun, FinishedRun]


def pairs(
    waiting: Sequence[FinishedRun], references: Sequence[FinishedRun], hypothesis: Hypothesis
) -> list[Pair]:
    """The pairs that waiting candidates and unused reference runs, each oldest first, make now.

    Pairs depend on workers and time, never on values. Callers keep the newest runs that are left,
    `concluding.MOST_UNPAIRED` of them.
    """
    found: list[Pair] = []
    alone, unused = list(waiting), list(references)
    for run in waiting:
        own = (r for r in unused if r.worker_id == run.worker_id and comparable(run, r, hypothesis))
        if (reference := next(own, None)) is not None:
            found.append((run, reference))
            alone.remove(run)
            unused.remove(reference)
    return found if is_of_influence(hypothesis) else found + list(_across(alone, unused, hypothesis))


def _across(alone: list[FinishedRun], unused: list[FinishedRun], hypothesis: Hypothesis) -> Iterator[Pair]:
    """Pairs across workers, until at most PATIENCE runs wait."""
    crossed = {
        name
        for e in hypothesis.evidence
        if e.reference_worker_id not in (None, e.worker_id)
        for name in (e.worker_id, e.reference_worker_id)
    }
    for run in alone[:-PATIENCE]:
        if run.worker_id in crossed:
            continue
        others = (r for r in unused if r.worker_id not in crossed and comparable(run, r, hypothesis))
        if (reference := next(others, None)) is not None:
            crossed |= {run.worker_id, reference.worker_id}
            unused.remove(reference)
            yield run, reference
