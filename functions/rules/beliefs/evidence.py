"""What a finished run says of a hypothesis: a win, a loss, something between, or nothing.

Policy `matched`: runs of the strategies in COMPARED are compared with one run of the hypothesis' frozen reference
config each (`functions/rules/beliefs/pairing.py`). Each reference run is used once: with a shared one, all outcomes
hang on its luck. Only a run counts that differs from the reference config in the hypothesis' dimensions alone, and
honours its constraint; else other dimensions would decide the claim. Runs of the other strategies look for the best
config. They are compared with their worker's baseline, and only for the hypothesis of their own population: once the
search works, all of them win, whatever is claimed. That is why they enter no e-value.

Policy `baseline`, the published one: each run is compared with its worker's baseline, for every hypothesis that it
bears on. Only one run of each worker among the newest evidence enters an e-value: its others share its baseline.

A win is a lower value, a loss a higher one; beside a reference run of a claim of influence, a win is a large enough
difference (`functions/rules/beliefs/influence.py`). A tie is no outcome, as in the sign test (Dixon and Mood, J. Am.
Stat. Assoc. 41, 1946), but counts as a contrast: a dimension that changes nothing at all shows by its ties.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from functions.rules.beliefs.influence import is_of_influence, outcome_of_distance
from functions.rules.beliefs.reprieved import Reprieved
from functions.rules.beliefs.strategies import COMPARED
from functions.rules.beliefs.terms import FinishedRun, Terms
from functions.rules.swarm.dimensions import same
from state.records import Evidence, Hypothesis, Value

ARCHIVED = frozenset({"refuted", "irrelevant"})
"""Verdicts after which runs are no evidence any more."""
SHARE = 0.2
"""Of the newest evidence, what one worker's runs may be that no reference run of its own stands beside: one that
always wins then raises the win share of an even claim to 0.6 and no higher, so that it decides nothing by itself."""
FREE = 2
"""Such runs of one worker that count whatever the share."""

Part = Literal["reference", "candidate", "counts", "none"]


def part_of(run: FinishedRun, hypothesis: Hypothesis, terms: Terms) -> Part:
    """What a run is to a hypothesis.

    `reference`: a run of its reference config, for one candidate to be compared with. The runs by which that config
    was chosen are none: they were lucky. Let none be stopped early: those that are left would be the better ones. A
    dimension that is frozen later has to be frozen in the reference config, too.
    `candidate`: it waits for a reference run, and says something beside it.
    `counts`: it says something by itself.
    `none`: it says nothing of the claim.
    """
    if run.ended == "failed" or hypothesis.phase == "validation" or hypothesis.settled in ARCHIVED:
        return "none"
    if terms.policy == "baseline":
        return "counts" if _bears_on(run, hypothesis) else "none"
    if is_reference(run, hypothesis):
        return "none" if run.ended == "stopped" else "reference"
    if run.strategy in COMPARED:
        if not is_matched(run, hypothesis):
            return "none"
        return "counts" if run.ended == "stopped" else "candidate"
    is_own = run.hypothesis_id == hypothesis.hypothesis_id
    return "counts" if is_own and _bears_on(run, hypothesis) else "none"


def outcome_of(
    run: FinishedRun, hypothesis: Hypothesis, terms: Terms, reference: FinishedRun | None = None
) -> Evidence | None:
    """What a run says of a hypothesis; a candidate says it beside a reference run.

    None: nothing, or nothing more, since its worker has said enough (SHARE).
    """
    part = part_of(run, hypothesis, terms)
    if part == "candidate" and reference is not None:
        return _beside(run, reference, hypothesis, terms)
    if part != "counts" or not _may_say_more(run.worker_id, hypothesis, terms):
        return None
    return _alone(run, hypothesis, terms)


def is_reference(run: FinishedRun, hypothesis: Hypothesis) -> bool:
    """Whether its config is the hypothesis' reference config."""
    return bool(hypothesis.reference_config) and not _apart(run.config, hypothesis.reference_config)


def is_matched(run: FinishedRun, hypothesis: Hypothesis) -> bool:
    """Whether it differs from the reference config in the claim's dimensions alone, and honours its constraint."""
    apart = _apart(run.config, hypothesis.reference_config)
    return bool(apart) and apart <= about(hypothesis) and honours(run.config, hypothesis.config_constraint)


def is_outside(run: FinishedRun, hypothesis: Hypothesis) -> bool:
    """Whether it is a matched run or a reference run, but for the constraint, which it does not honour."""
    return (
        bool(hypothesis.config_constraint)
        and run.ended == "value"
        and _apart(run.config, hypothesis.reference_config) <= about(hypothesis)
        and not honours(run.config, hypothesis.config_constraint)
    )


def comparable(run: FinishedRun, reference: FinishedRun, hypothesis: Hypothesis) -> bool:
    """Whether two runs were made under the same conditions and differ in the hypothesis' dimensions alone."""
    return run.key == reference.key and _apart(run.config, reference.config) <= about(hypothesis)


def about(hypothesis: Hypothesis) -> frozenset[str]:
    """The dimensions that it is about: those that it names, and those of its constraint."""
    return frozenset(hypothesis.dimensions) | hypothesis.config_constraint.keys()


def honours(config: Mapping[str, Value], constraint: Mapping[str, Any]) -> bool:
    """Whether a config has a value that the constraint allows in each of its dimensions."""
    return all(name in config and _allows(allowed, config[name]) for name, allowed in constraint.items())


def _beside(
    run: FinishedRun, reference: FinishedRun, hypothesis: Hypothesis, terms: Terms
) -> Evidence | None:
    """A pair; a crash is worse than any value, on either side, and two crashes say nothing.

    Of a claim of influence no crash says anything: how much worse it is than noise is not known.
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
    settle = outcome_of_distance if is_of_influence(hypothesis) else _outcome
    outcome = settle(contrast, terms)
    return Evidence(**pair, outcome=outcome, against="reference", delta=run.judged, contrast=contrast)


def _alone(run: FinishedRun, hypothesis: Hypothesis, terms: Terms) -> Evidence | None:
    said: dict[str, Any] = {
        "experiment_id": run.experiment_id,
        "worker_id": run.worker_id,
        "is_guarded": _is_guarded(run, hypothesis, terms),
    }
    moves_belief = terms.policy == "baseline" or run.strategy in COMPARED
    if run.judged is not None:
        outcome = _outcome(run.judged, terms) if moves_belief else None
        return Evidence(**said, outcome=outcome, against="baseline", delta=run.judged)
    if not moves_belief:
        return None
    if run.ended == "stopped":
        if terms.policy == "matched" and is_of_influence(hypothesis):
            return None
        return Evidence(**said, outcome=(run.reprieved or Reprieved()).share, against="stopped")
    return Evidence(**said, outcome=0.0, against="crash") if hypothesis.config_constraint else None


def _is_guarded(run: FinishedRun, hypothesis: Hypothesis, terms: Terms) -> bool:
    if terms.policy == "matched":
        return run.strategy in COMPARED
    return not any(e.is_guarded and e.worker_id == run.worker_id for e in hypothesis.evidence)


def _outcome(difference: float, terms: Terms) -> float | None:
    return None if abs(difference) <= terms.smallest else float(difference < 0)


def _may_say_more(worker_id: str, hypothesis: Hypothesis, terms: Terms) -> bool:
    """Whether the worker's runs without a reference run of its own are few enough for one more.

    With fewer than five workers, each has its part.
    """
    said = sum(e.worker_id == worker_id and e.reference_worker_id != worker_id for e in hypothesis.evidence)
    share = max(SHARE, 1 / max(terms.workers, 1))
    return said < max(FREE, share * (len(hypothesis.evidence) + 1))


def _bears_on(run: FinishedRun, hypothesis: Hypothesis) -> bool:
    """Whether it honours the constraint; without one, whether it varies one of the named dimensions."""
    if hypothesis.config_constraint:
        return honours(run.config, hypothesis.config_constraint)
    return not about(hypothesis).isdisjoint(_apart(run.config, hypothesis.reference_config))


def _apart(config: Mapping[str, Value], reference: Mapping[str, Value]) -> frozenset[str]:
    """The dimensions of a reference config in which another config differs from it.

    One that was added later is in no reference config: `comparable` sees it in the reference runs.
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
