"""Gains for every view, and the chain of keeps that led to the best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from functions.fold import CONTRADICTED
from functions.trust.rules.noise import claim
from functions.trust.rules.retests import AnyRun, fresh_runs
from state.facts import Runs
from state.records import ComparedRun, Direction, ExperimentRecord, KeepRecord, OneRun, score

BySeed = dict[int | None, float]
"""Values by seed; None is the script's own seed."""


@dataclass(frozen=True)
class Gain:
    """Comparison of two experiments on the same seeds."""

    before: float
    after: float
    by: float
    """Above zero is better, whatever the direction."""
    runs: int
    """Number of further runs of each in the means; 0: one run of each."""


def gain_over(before: Runs[OneRun] | None, after: Runs[OneRun], direction: Direction) -> Gain | None:
    """The gain of `after`, from further runs on seeds that both have run; without any, from its first run.

    A first run is biased, because the experiment was chosen for it. `before` None is the baseline of a swarm's
    worker: the values are differences from it. The answer is None if the two share no seed, or `after` is a claim.
    """
    return _gain(None if before is None else _by_seed(before), after, direction)


def _gain(known: BySeed | None, after: Runs[OneRun], direction: Direction) -> Gain | None:
    if after.experiment.is_claim:
        return None
    first, further = _first(after), _further(after)
    if known is None:
        known = dict.fromkeys(first | further, 0.0)
    mine = further if further.keys() & known.keys() else first
    shared = mine.keys() & known.keys()
    if not shared:
        return None
    was, now = (math.fsum([values[seed] for seed in shared]) / len(shared) for values in (known, mine))
    by = score(was, direction) - score(now, direction)
    return Gain(was, now, by, len(shared) if mine is further else 0)


def unbiased(runs: Runs[AnyRun] | None) -> tuple[float | None, int]:
    """Mean of an experiment's further runs and their number; without any, its first value and 0."""
    if runs is None:
        return None, 0
    fresh = [r.own_value for r in fresh_runs(runs.experiment, runs.retests) if r.own_value is not None]
    found = claim(fresh, None)
    return (found.claimed_bpb, found.runs) if found else (runs.experiment.own_value, 0)


def is_compared(e: ExperimentRecord | ComparedRun) -> bool:
    """Whether it was compared with another experiment, or with its worker's baseline."""
    has_other = e.compared_with is not None or e.by_delta
    return has_other and e.delta is not None and not e.baseline and e.retest_of is None


def gain_of(
    e: ExperimentRecord | ComparedRun, runs: Runs[OneRun], compared: Runs[OneRun] | None, direction: Direction
) -> Gain | None:
    """The gain of `e` over the best that it was compared with; None if that is gone."""
    is_gone = compared is None and e.compared_with is not None
    return gain_over(compared, runs, direction) if is_compared(e) and not is_gone else None


def gains_of(
    es: Sequence[ExperimentRecord | ComparedRun], known: Mapping[str, Runs[OneRun]], direction: Direction
) -> dict[str, float]:
    """The gain of each experiment that can be compared, by id; above zero is better."""
    gains: dict[str, float] = {}
    before: dict[str | None, BySeed | None] = {None: None}
    for e in es:
        own, best = known.get(e.experiment_id), e.compared_with
        if own is None or not is_compared(e):
            continue
        if best is not None and best not in before:  # many are compared with the same one
            before[best] = _by_seed(known[best]) if best in known else {}
        if (gain := _gain(before[best], own, direction)) is not None:
            gains[e.experiment_id] = gain.by
    return gains


def _by_seed(runs: Runs[OneRun]) -> BySeed:
    return _first(runs) | _further(runs)


def _first(runs: Runs[OneRun]) -> BySeed:
    """The first run, unless its further runs contradict it."""
    e = runs.experiment
    if e.own_value is None or e.reason == CONTRADICTED:
        return {}
    measured_by = (r.seed for r in runs.retests if r.experiment_id == e.measured_by)
    return {next(measured_by, e.seed): e.own_value}


def _further(runs: Runs[OneRun]) -> BySeed:
    fresh = fresh_runs(runs.experiment, runs.retests)
    return {r.seed: r.own_value for r in fresh if r.own_value is not None}


@dataclass(frozen=True)
class ChainStep:
    """A keep in the chain that led to the best."""

    keep: KeepRecord
    above: KeepRecord | None
    """The keep that it changed, or in a swarm, that it beat. None: the tag's base commit, or a retracted keep."""


def chain(best_id: str | None, keeps: Sequence[KeepRecord]) -> list[ChainStep]:
    """The keeps from the first to the best, in their order.

    If the base of a keep was demoted or retracted, the keep before it takes the base's place. Numbers fall on the way
    back, so the chain ends whatever the records say.
    """
    known = {e.experiment_id: e for e in keeps}
    here, found = known.get(best_id or ""), list[ChainStep]()
    while here is not None:
        above = _above(here, known)
        found.append(ChainStep(here, above))
        here = above
    return found[::-1]


def _above(keep: KeepRecord, known: dict[str, KeepRecord]) -> KeepRecord | None:
    if keep.baseline:
        return None
    named = known.get(keep.made_from or "")
    if named is not None and named.number < keep.number:
        return named
    return max((e for e in known.values() if e.number < keep.number), key=lambda e: e.number, default=None)
