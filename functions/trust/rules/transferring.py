"""Transfer: whether a keep's gain over its reference holds when both train for longer.

The keep and its reference run in pairs at the longer budget, and the sequential test of certificates decides
(`functions/trust/rules/sequential.py` has its sources). It bets against "the keep gains nothing there". At ALPHA
1 keep in 20 without a gain there is said to transfer, at most. The test gives up where a gain is hopeless: then the
keep is bound to its budget. That befalls 1 keep in 100 with a true gain of two sigmas of a run there, and 1 in 6 with
one sigma. The first runs of both codes are the first pair.
"""

from __future__ import annotations

import math

from functions.trust.rules.certifying import check_pair, fault_of, gains
from state.errors import Conflict, Invalid
from state.records import Certificate, CertificatePair, Experiment, Tag, Transfer, score

ALPHA = 0.05
MOST_PAIRS = 20
LONGEST_S = 7 * 86400.0
"""The longest budget of a run."""


def planned(
    candidate: Experiment, reference: Experiment, tag: Tag, budget: str, before: list[Transfer], into: str
) -> Transfer:
    """The transfer before its first run, or the one that was begun.

    Raises:
        Conflict: it was not kept, or the two cannot be run in pairs. Invalid: the budget is no longer than its own.
    """
    check_pair(candidate, reference)
    name = candidate.experiment_id
    if candidate.status != "keep":
        raise Conflict(
            f"{name} is a discard: only a keep has a gain", hint="name a keep: ./nightjar ls --status keep"
        )
    own_s = candidate.budget_s
    if own_s is None or not candidate.was_trained_here:
        raise Conflict(f"{name} was not trained by a worker of this lab", hint="submit its code")
    budget_s = float(budget.removesuffix("x")) * (own_s if budget.endswith("x") else 1.0)
    if not own_s < budget_s <= LONGEST_S:
        raise Invalid(
            f"{budget_s:g} s is not a longer budget: {name} had {own_s:g} s, and a run has at most {LONGEST_S:g} s",
            hint="name a multiple of its own, such as 4x, or seconds",
        )
    asked = (name, reference.experiment_id, budget_s)
    for one in reversed(before):
        if (one.experiment_id, one.against, one.budget_s) == asked and one.state != "inconclusive":
            return one
    return Transfer(
        experiment_id=name,
        against=reference.experiment_id,
        tag=tag.name,
        into=into,
        own_budget_s=own_s,
        budget_s=budget_s,
        most_runs=2 * MOST_PAIRS,
        gain=score(reference.judged or 0.0, tag.direction) - score(candidate.judged or 0.0, tag.direction),
    )


def why_not(one: Transfer, candidate: Experiment, reference: Experiment) -> str | None:
    """Why the first runs at the longer budget are no pair; None: they are one.

    A script that trains for no longer than before ignores the budget: its run ends nearer to the shorter one.
    """
    for run in (reference, candidate):
        if (fault := fault_of(run, reference)) is not None:
            return fault
        if run.wall_seconds is not None and run.wall_seconds < (one.own_budget_s + one.budget_s) / 2:
            took = f"{run.experiment_id} trained {run.wall_seconds:.3g} s of {one.budget_s:g} s"
            return f"{took}: have the script train for NIGHTJAR_BUDGET_S seconds"
    return None


def certificate_of(one: Transfer, candidate: Experiment, reference: Experiment, tag: Tag) -> Certificate:
    """The certificate that decides, with the first runs as its first pair."""
    first = CertificatePair(
        first="reference",
        candidate=candidate.experiment_id,
        reference=reference.experiment_id,
        measured=(candidate.own_value or 0.0, reference.own_value or 0.0),
    )
    return Certificate(
        experiment_id=candidate.experiment_id,
        against=reference.experiment_id,
        direction=tag.direction,
        min_gain=0.0,
        alpha=ALPHA,
        most_pairs=one.most_runs // 2,
        gpu_class=candidate.gpu_class,
        pairs=(first,),
    )


def judged(one: Transfer, by: Certificate) -> Transfer:
    label = {"certified": "transfers", "refused": "bound to its budget"}.get(by.state, by.state)
    found = gains(by)
    update = {"pairs": len(found), "longer_gain": math.fsum(found) / len(found), "e_value": by.e_value}
    return one.model_copy(update={"state": label, "reason": by.reason, **update})


def ended(one: Transfer, reason: str) -> Transfer:
    return one.model_copy(update={"state": "inconclusive", "reason": reason})
