"""By how much one experiment is better than another: every view takes it from here."""

from __future__ import annotations

import math
from dataclasses import dataclass

from functions.rules.keeps.retests import fresh_runs
from functions.rules.keeps.retracting import CONTRADICTED
from functions.rules.keeps.verdict import score
from state.facts import Runs
from state.records import Direction, OneRun, Trial

BySeed = dict[int | None, float]
"""Values by seed; None is the script's own seed."""


@dataclass(frozen=True)
class Gain:
    """Two experiments on the same seeds."""

    before: float
    after: float
    by: float
    """Above zero is better, whatever the direction."""
    runs: int
    """Further runs of each that `before` and `after` are means of; 0: one run of each."""


def gain_over(before: Runs[OneRun] | None, after: Runs[OneRun], direction: Direction) -> Gain | None:
    """The gain of `after`, by the further runs on seeds that both have run; else by its first run.

    The first run flatters an experiment that was chosen by it. `before` None is the baseline of a swarm's worker: the
    values are differences from it. None where the two share no seed, or nobody but its agent has measured `after`.
    """
    if after.experiment.is_claim:
        return None
    first, further = _first(after), _further(after)
    known = dict.fromkeys(first | further, 0.0) if before is None else _first(before) | _further(before)
    mine = further if further.keys() & known.keys() else first
    shared = mine.keys() & known.keys()
    if not shared:
        return None
    was, now = (math.fsum(values[seed] for seed in shared) / len(shared) for values in (known, mine))
    by = score(was, direction) - score(now, direction)
    return Gain(was, now, by, len(shared) if mine is further else 0)


def is_compared(e: Trial) -> bool:
    """Whether it was judged beside another experiment, or beside its worker's baseline."""
    has_other = e.compared_with is not None or e.delta_bpb is not None
    return has_other and e.delta is not None and not e.baseline and e.retest_of is None


def gain_of(e: Trial, runs: Runs[OneRun], compared: Runs[OneRun] | None, direction: Direction) -> Gain | None:
    """The gain of `e` with its `runs` over the best that it was compared with; None if that is gone."""
    is_gone = compared is None and e.compared_with is not None
    return gain_over(compared, runs, direction) if is_compared(e) and not is_gone else None


def _first(runs: Runs[OneRun]) -> BySeed:
    """The run that an experiment was chosen by, unless its further runs contradict it."""
    e = runs.experiment
    if e.own_value is None or e.reason == CONTRADICTED:
        return {}
    measured_by = (r.seed for r in runs.retests if r.experiment_id == e.measured_by)
    return {next(measured_by, e.seed): e.own_value}


def _further(runs: Runs[OneRun]) -> BySeed:
    fresh = fresh_runs(runs.experiment, runs.retests)
    return {r.seed: r.own_value for r in fresh if r.own_value is not None}
