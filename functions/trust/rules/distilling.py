"""Distillation: which change is left out next, and whether it is worth its lines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from functions.experiments.rules.verdict import key_of
from functions.trust.rules.noise import standard_error
from state.facts import Noise
from state.records import OPEN, ChainChange, Distillation, Experiment, score

REFERENCE_RUNS = 4
"""Runs of the whole chain, and at most as many of the smallest code at the end."""
MOST_EACH = 5
"""Runs without one change after which the mean decides."""
DROP, KEEP = 3.5, 3.2
"""Log of the likelihood ratio at which a change is dropped or kept. `bench.distil` shows the error rates."""


def most_runs(changes: int) -> int:
    """Runs that distilling a chain may take: two for each change, and more for short chains."""
    return 2 * changes + max(0, 6 - changes // 3)


@dataclass(frozen=True)
class RepeatRun:
    """Run an experiment's code until it has so many runs."""

    name: str
    runs: int


@dataclass(frozen=True)
class LeaveOut:
    """Leave this change out of the smallest code."""

    change: ChainChange


@dataclass(frozen=True)
class Finish:
    """Everything is decided."""


Step = RepeatRun | LeaveOut | Finish | Distillation
"""The next action, or the state after a measurement."""


def verdict(losses: float, runs: int, others: int, noise: Noise, margin: float) -> str | None:
    """`dropped` or `kept`, for the mean loss of `runs` runs beside `others` runs; None: run it again.

    Wald's sequential test of two normal means: no loss against one of twice the margin (A. Wald, Sequential Analysis,
    1947, chapter 7). The margin is the one of near misses, so a loss within the noise is dropped.
    """
    error = standard_error(noise.sigma, runs, others)
    if error == 0 or runs >= MOST_EACH:
        return "dropped" if losses <= margin else "kept"
    ratio = (losses - margin) * 2 * margin / error**2
    if ratio <= -DROP:
        return "dropped"
    return "kept" if ratio >= KEEP else None


def following(
    one: Distillation, runs: Mapping[str, Sequence[Experiment]], noise: Noise | None, margin: float
) -> Step | None:
    """The next step; None: runs are awaited.

    `runs` has the runs of the reference, of the smallest code and of the code that is tried, first runs first.
    """
    whole, smallest = one.reference or "", one.smallest or ""
    one = _counted(one, runs)
    if any(run.status in OPEN for its in runs.values() for run in its):
        return None
    reference = runs[whole]
    if not _values(reference[:1], reference[0]):
        first = reference[0]
        why = first.guard or first.error_kind or first.status
        said = f"{first.experiment_id}, the code of the whole chain, has no value here: {why}"
        return one.model_copy(update={"state": "stopped", "reason": said})
    if len(reference) < REFERENCE_RUNS and one.runs < one.most_runs:
        return RepeatRun(whole, min(REFERENCE_RUNS, len(reference) + one.most_runs - one.runs))
    known = [*_values(reference, reference[0]), *one.pooled]
    if (trying := one.trying) is not None:
        assert trying.without is not None
        return _judged(one, trying, runs[trying.without], reference[0], known, noise, margin)
    untried = [change for change in one.changes if change.state == "untried"]
    if untried and one.runs < one.most_runs:
        return LeaveOut(max(reversed(untried), key=lambda change: change.lines))
    if untried:
        return _with(one, untried[0], state="undecided", reason="there were no more runs")
    again = len(runs[smallest]) + 1
    if smallest != whole and again <= REFERENCE_RUNS and one.runs < one.most_runs:
        return RepeatRun(smallest, again)
    return Finish()


def finished(
    one: Distillation,
    runs: Mapping[str, Sequence[Experiment]],
    noise: Noise | None,
    parts: Sequence[Sequence[str]],
) -> Distillation:
    """The result, with the independent changes."""
    first = runs[one.reference or ""][0]
    ours, theirs = (_values(runs[name or ""], first) for name in (one.smallest, one.reference))
    update = {
        "state": "done",
        "loss": _loss(one, ours, theirs) if one.smallest != one.reference else 0.0,
        "noise": noise.sigma if noise else None,
        "parts": tuple(tuple(part) for part in parts),
    }
    return _counted(one, runs).model_copy(update=update)


def left_out(one: Distillation, change: ChainChange, without: str | None) -> Distillation:
    """A change whose code without it is tried by an experiment; None: git cannot take it out alone."""
    if without is not None:
        return _with(one, change, state="trying", without=without, reason="")
    return _with(one, change, state="needed", reason="later changes are built on it")


def dropped(one: Distillation, change: ChainChange, smallest: str | None, reason: str) -> Distillation:
    """Without this change. Changes that were needed may be left out now."""
    one = _with(one, change, state="dropped", reason=reason)
    changes = tuple(
        each.model_copy(update={"state": "untried", "reason": ""}) if each.state == "needed" else each
        for each in one.changes
    )
    return one.model_copy(update={"changes": changes, "smallest": smallest or one.smallest})


def _judged(
    one: Distillation,
    change: ChainChange,
    its: Sequence[Experiment],
    reference: Experiment,
    known: Sequence[float],
    noise: Noise | None,
    margin: float,
) -> Step:
    first, values = its[0], _values(its, reference)
    if not _values([first], reference):
        what = f"guard {first.guard}" if first.guard else first.error_kind or first.status
        if first.own_value is not None and first.status in ("keep", "discard"):
            return _with(one, change, state="undecided", reason="it ran on another class of GPU")
        return _with(one, change, state="kept", reason=f"without it: {what}")
    loss = _loss(one, values, known)
    one = _with(one, change, loss=loss)
    change = next(each for each in one.changes if each.experiment_id == change.experiment_id)
    found = None if noise is None else verdict(loss, len(values), len(known), noise, margin)
    if found is None and one.runs < one.most_runs and len(its) < 2 * MOST_EACH:
        return RepeatRun(first.experiment_id, len(its) + 1)
    if found == "dropped":
        after = dropped(one, change, first.experiment_id, "the code is no worse without it")
        return after.model_copy(update={"pooled": (*one.pooled, *values)})
    if found == "kept":
        return _with(one, change, state="kept", reason="the code is worse without it")
    return _with(one, change, state="undecided", reason="there were no more runs")


def _values(its: Sequence[Experiment], reference: Experiment) -> list[float]:
    """Values that were measured under the reference's conditions."""
    return [
        run.own_value
        for run in its
        if run.own_value is not None
        and run.status in ("keep", "discard", "measured")
        and key_of(run) == key_of(reference)
    ]


def _loss(one: Distillation, ours: Sequence[float], theirs: Sequence[float]) -> float:
    """How much worse the mean of our runs is, above zero is worse."""
    mean, other = (math.fsum(values) / len(values) for values in (ours, theirs))
    return score(mean, one.direction) - score(other, one.direction)


def _counted(one: Distillation, runs: Mapping[str, Sequence[Experiment]]) -> Distillation:
    """With the number of runs that were begun."""
    changes = tuple(
        change.model_copy(update={"runs": len(runs[change.without])})
        if change.without is not None and change.without in runs
        else change
        for change in one.changes
    )
    return one.model_copy(update={"changes": changes, "reference_runs": len(runs[one.reference or ""])})


def _with(one: Distillation, change: ChainChange, **update: Any) -> Distillation:
    changes = tuple(
        each.model_copy(update=update) if each.experiment_id == change.experiment_id else each
        for each in one.changes
    )
    return one.model_copy(update={"changes": changes})
