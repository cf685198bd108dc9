"""Certificates: whether one may begin, and its next step after a pair of runs."""

from __future__ import annotations

from collections.abc import Mapping

from functions.experiments.rules.reports import MOST_RETESTS, check_repeatable
from functions.experiments.rules.verdict import key_of
from functions.trust.rules.sequential import HOPELESS, decided, paired_gain
from state.errors import Conflict
from state.records import (
    OPEN,
    RETESTED,
    Certificate,
    CertificatePair,
    CertificateState,
    Experiment,
    Tag,
    score,
)

MOST_PAIRS = 30
"""Pairs after which a certificate that is undecided is inconclusive."""
MOST_BROKEN = 3
"""Pairs of one certificate that are run again because a run has no value."""


def reference_of(candidate: Experiment, tag: Tag) -> str:
    """The default reference: the tag's baseline, else the best that the candidate was compared with.

    Raises:
        Conflict: there is none.
    """
    for name in (tag.baseline_id, candidate.compared_with):
        if name is not None and name != candidate.experiment_id:
            return name
    raise Conflict(
        f"{candidate.experiment_id} was compared with nothing", hint="name a reference experiment: against"
    )


def begun(
    asked: Certificate, before: Certificate | None, candidate: Experiment, reference: Experiment, now: float
) -> Certificate:
    """The certificate to store: `asked`, or the one that was begun under the same conditions.

    Raises:
        Conflict: another is under way, the two experiments cannot be run in pairs, or a transfer tests them.
    """
    is_of_transfer = before and any(pair.candidate == before.experiment_id for pair in before.pairs)
    if is_of_transfer and not asked.pairs:
        raise Conflict(
            f"{candidate.experiment_id} is a run of a transfer, which has a test of its own",
            hint="certify the keep itself; ./nightjar show KEEP has its transfer",
        )
    if before is not None and _conditions(before) == _conditions(asked):
        return before
    if before is not None and before.state == "running":
        raise Conflict(
            f"{candidate.experiment_id} is being certified against {before.against}",
            hint="wait for its verdict, or ask with the same against, min_gain and alpha",
        )
    check_pair(candidate, reference)
    first = {"nth": before.nth + 1 if before else 1, "gpu_class": candidate.gpu_class, "begun_at": now}
    return asked.model_copy(update=first)


def check_pair(candidate: Experiment, reference: Experiment) -> None:
    """Raise Conflict for two experiments that cannot be run in pairs."""
    for e in (candidate, reference):
        _check_measured(e)
    if candidate.experiment_id == reference.experiment_id or candidate.tag != reference.tag:
        raise Conflict("pairs are of two experiments of one tag", hint="name another reference")
    if key_of(candidate) != key_of(reference):
        raise Conflict(
            f"{candidate.experiment_id} and {reference.experiment_id} were measured under other conditions:"
            f" {key_of(candidate)}, {key_of(reference)}",
            hint="name a reference with the same GPU class, evaluator and budget",
        )


def _conditions(one: Certificate) -> tuple[str, float, float]:
    return one.against, one.min_gain, one.alpha


def _check_measured(e: Experiment) -> None:
    check_repeatable(e)
    if e.is_claim or e.worker_id is not None or e.gpu_class is None:
        raise Conflict(
            f"{e.experiment_id} was not measured by a worker of this lab",
            hint="submit it: pairs need runs on a known class of GPU",
        )


def following(
    one: Certificate,
    candidate: Experiment,
    reference: Experiment,
    runs: Mapping[str, Experiment],
    first: str,
    now: float,
) -> Certificate:
    """The certificate once the runs of its newest pair are over, with its verdict or its next pair.

    `runs` has those that were begun. `first` is the side that the next pair begins with, drawn beforehand.
    """
    both = (candidate, reference)
    gone = next((e.experiment_id for e in both if e.status == "retracted"), None)
    if gone is not None and one.state in ("running", "certified"):
        return _ended(one, "inconclusive", f"{gone} was retracted", now)
    if one.state != "running":
        return one
    if one.pairs and one.pairs[-1].is_open:
        newest = one.pairs[-1]
        found = [runs.get(name) for name in (newest.candidate, newest.reference)]
        if any(run is None or run.status in OPEN for run in found):
            return one
        one = _judged(one, _closed(newest, [run for run in found if run is not None], candidate), now)
    if one.state != "running":
        return one
    if any(e.retests >= MOST_RETESTS for e in both):
        return _ended(one, "inconclusive", f"its code was run again {MOST_RETESTS} times", now)
    pair = CertificatePair.model_validate(
        {"first": first, "candidate": _next_run(candidate), "reference": _next_run(reference)}
    )
    return one.model_copy(update={"pairs": (*one.pairs, pair)})


def _next_run(e: Experiment) -> str:
    """The id of the next retest that anybody begins. Nobody knows its value yet."""
    return f"{e.experiment_id}.{e.retests + 2}"


def _closed(pair: CertificatePair, runs: list[Experiment], candidate: Experiment) -> CertificatePair:
    faults = [fault for run in runs if (fault := fault_of(run, candidate)) is not None]
    values = [run.own_value for run in runs]
    if faults or None in values:
        return pair.model_copy(update={"broken": "; ".join(faults)})
    return pair.model_copy(update={"measured": tuple(values)})


def fault_of(run: Experiment, candidate: Experiment) -> str | None:
    """Why a run is no evidence. It is a retest, or the first run of its code."""
    if run.status not in (RETESTED, "keep", "discard") or run.val_bpb is None:
        return f"{run.experiment_id}: {run.error_kind or run.status}"
    if run.own_value is None:
        return f"{run.experiment_id}: {f'guard {run.guard}' if run.guard else 'over its budget'}"
    if run.claimed or key_of(run) != key_of(candidate):
        return f"{run.experiment_id}: measured under other conditions"
    return None


def _judged(one: Certificate, closed: CertificatePair, now: float) -> Certificate:
    one = one.model_copy(update={"pairs": (*one.pairs[:-1], closed)})
    state, e = decided(gains(one), one.alpha, one.most_pairs)
    one = one.model_copy(update={"e_value": e})
    broken = [pair.broken for pair in one.pairs if pair.broken is not None]
    if len(broken) > MOST_BROKEN:
        return _ended(
            one, "inconclusive", f"{len(broken)} pairs had a run without a value: {broken[-1]}", now
        )
    match state:
        case "certified":
            return _ended(one, "certified", "", now)
        case "refused":
            return _ended(one, "refused", f"no hope: its e-value fell to {e:.3g}, {HOPELESS} refuses", now)
        case "inconclusive":
            return _ended(one, "inconclusive", f"{one.most_pairs} pairs cannot decide it", now)
    return one


def gains(one: Certificate) -> list[float]:
    """Gain above the margin of each pair that counts."""
    return [
        paired_gain(score(reference, one.direction), score(candidate, one.direction), one.min_gain)
        for candidate, reference in one.counted
    ]


def _ended(one: Certificate, state: CertificateState, reason: str, now: float) -> Certificate:
    return one.model_copy(update={"state": state, "reason": reason, "decided_at": now})
