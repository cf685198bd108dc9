"""Tests of a hypothesis: the runs that one still needs, its verdict, and the validation phase."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import combinations
from math import ceil, sqrt
from statistics import fmean
from typing import Any, Final, Literal

from functions.beliefs.rules.learning import after_test
from functions.beliefs.rules.posterior import (
    Cells,
    Contrast,
    concordance,
    concordance_p,
    contrast,
    holm,
    interaction_p,
    pooled_variance,
    ranks,
    residuals,
)
from functions.beliefs.rules.specs import (
    Decision,
    InteractionGrid,
    RankingConsistency,
    SingleFactorEffect,
    Spec,
    ThresholdTest,
    cells_of,
    check_spec,
)
from functions.beliefs.rules.terms import FinishedRun
from functions.swarm.rules.proposals import ConfigProposal, fingerprint
from functions.swarm.rules.shapes import Shape, contradictions, standing_config
from state.errors import Invalid
from state.records import Dimension, Evidence, Hypothesis, Value

# -- Test protocols: the runs that a test still needs, and its verdict on the claim.

ARM_PRIORITY: Final = 0.88
CELL_PRIORITY: Final = 0.90
LEVEL: Final = 0.05
"""P value below which a test is significant."""
TRIES: Final = 3
"""Crashes per needed run after which a cell counts as not measurable."""
LARGEST: Final = 1e100
"""Deltas are clipped to this size, so that their squares are finite."""


@dataclass(frozen=True)
class CellRun:
    """A run that may belong to a cell of a test."""

    config: Mapping[str, Value]
    delta: float | None
    """Lower is better; None: it crashed, or has not ended."""
    pending: bool = False
    """It waits or runs."""


@dataclass(frozen=True)
class RunningTest:
    """A test of one hypothesis, with the values of all other dimensions."""

    spec: Spec
    dimensions: Sequence[Dimension]
    reference_config: Mapping[str, Value]
    """The best config when the test began."""
    constraint: Mapping[str, Any]


@dataclass(frozen=True)
class ProtocolResult:
    outcome: Literal["win", "loss"] | None
    """None: it is not complete."""
    effect: float | None = None
    standard_error: float | None = None
    p_value: float | None = None


OPEN: Final = ProtocolResult(None)


def missing_cells(test: RunningTest, runs: Sequence[CellRun]) -> list[ConfigProposal]:
    """The runs that a test still needs, cell by cell in turn; empty when it is complete.

    Each config has the values of its cell, then those fixed by the spec and the constraint, and else the reference
    values. Runs that wait or run are not proposed again. A cell with three crashes for each needed run is given up.
    No runs are missing while the test is blocked.
    """
    if is_blocked(test.spec, test.dimensions) or verdict(test, runs).outcome is not None:
        return []
    priority = CELL_PRIORITY if isinstance(test.spec, InteractionGrid) else ARM_PRIORITY
    cells, seen = cells_of(test.spec), _seen(test, runs)
    needed = [
        0 if _is_gone(test, cell) else _runs_wanted(test) - len(cell.values) - cell.pending for cell in seen
    ]
    found: list[ConfigProposal] = []
    for nth in range(max(needed)):
        for config, cell, lacking in zip(_configs(test), cells, needed, strict=True):
            if nth < lacking:
                shown = ", ".join(f"{name} = {value!r}" for name, value in cell.items())
                found.append(ConfigProposal(config, priority, f"{test.spec.type}: {shown}"))
    return found


def verdict(test: RunningTest, runs: Sequence[CellRun]) -> ProtocolResult:
    """The result of a test from its runs, in the order in which they ended; runs of other configs are ignored.

    A test is complete when each cell has `min_runs_per_cell` values and all cells together have `min_total_runs`.
    With the decision `significant`, each cell needs 2 values. With `or_confidence` the test ends as soon as the first
    values of all cells (equally many, at least 2) show an effect with that confidence. The level is divided by the
    number of looks (Bonferroni), because each look may take noise for an effect.

    `threshold` (published): a win if the effect reaches the threshold. The range of several noisy arms is biased
    upward, so pure noise wins often. `significant`: a win only if a two-sided test at 0.05 agrees.

    Arms that crashed too often are left out. The test is lost if too few are left for a comparison.
    """
    if is_blocked(test.spec, test.dimensions):
        return OPEN
    seen = _seen(test, runs)
    values, gone = [cell.values for cell in seen], [_is_gone(test, cell) for cell in seen]
    lost = {n for n, cell in enumerate(seen) if gone[n] and not cell.values}
    if lost and not _is_left(test.spec, lost):
        return ProtocolResult("loss")
    level, wanted = LEVEL / _looks(test), _runs_wanted(test)
    if all(len(cell) >= wanted or gone[n] for n, cell in enumerate(values)):
        return _judged(test, _measured(test.spec, values, lost), level)
    sure = test.spec.stop_condition.or_confidence
    equal = min(len(cell) for n, cell in enumerate(values) if n not in lost)
    if sure is None or equal < 2:
        return OPEN
    effect = _measured(test.spec, [cell[:equal] for cell in values], lost)
    if effect.p_value is None or effect.p_value > (1 - sure) / _looks(test):
        return OPEN
    return _judged(test, effect, level)


def is_blocked(spec: Spec, dimensions: Sequence[Dimension]) -> bool:
    """Whether a cell cannot be run now, for example because a dimension is frozen."""
    shapes = (Shape("validate", constraint={**spec.fixed, **cell}) for cell in cells_of(spec))
    return any(problem for shape in shapes for problem in contradictions(dimensions, shape))


def decision_of(test: RunningTest) -> Decision:
    return test.spec.decision_rule.decision or "threshold"


# -- cells


@dataclass(frozen=True)
class _Cell:
    values: list[float]
    crashed: int
    pending: int


def _configs(test: RunningTest) -> list[dict[str, Value]]:
    """The complete config of each cell."""
    found: list[dict[str, Value]] = []
    for cell in cells_of(test.spec):
        constraint = {**test.constraint, **test.spec.fixed, **cell}
        shape = Shape("validate", free=(), constraint=constraint, center=test.reference_config)
        found.append(standing_config(test.dimensions, shape))
    return found


def _seen(test: RunningTest, runs: Sequence[CellRun]) -> list[_Cell]:
    """The runs of each cell. Configs are compared with canonical floats."""
    cells = {fingerprint(config, test.dimensions): _Cell([], 0, 0) for config in _configs(test)}
    for run in runs:
        name = fingerprint(run.config, test.dimensions)
        if (cell := cells.get(name)) is None:
            continue
        if run.pending:
            cells[name] = replace(cell, pending=cell.pending + 1)
        elif run.delta is None:
            cells[name] = replace(cell, crashed=cell.crashed + 1)
        else:
            cell.values.append(min(max(run.delta, -LARGEST), LARGEST))
    return list(cells.values())


def _runs_wanted(test: RunningTest) -> int:
    """Number of values that each cell needs."""
    spec = test.spec
    together = spec.stop_condition.min_total_runs or 0
    least = 2 if decision_of(test) == "significant" else 1
    return max(spec.min_runs_per_cell, ceil(together / len(cells_of(spec))), least)


def _looks(test: RunningTest) -> int:
    """Number of looks: once, or after each round of runs from the second with `or_confidence`."""
    if test.spec.stop_condition.or_confidence is None:
        return 1
    return max(1, _runs_wanted(test) - 1)


def _is_gone(test: RunningTest, cell: _Cell) -> bool:
    return cell.crashed >= TRIES * _runs_wanted(test)


def _is_left(spec: Spec, lost: Set[int]) -> bool:
    """Whether a comparison is possible without these cells."""
    match spec:
        case SingleFactorEffect():
            return len(spec.values) - len(lost) >= 2
        case ThresholdTest():
            return len({_is_above(spec, n) for n in range(len(spec.values)) if n not in lost}) == 2
        case _:
            return False


# -- effects


def _measured(spec: Spec, values: Cells, lost: Set[int]) -> Contrast:
    """The effect of a test, from the cells that are not lost. Its P value is corrected for several comparisons."""
    match spec:
        case SingleFactorEffect():
            return _range_of_arms([cell for n, cell in enumerate(values) if n not in lost])
        case InteractionGrid():
            return _interaction(values, columns=len(spec.axes[1][1]))
        case ThresholdTest():
            return _difference_of_sides(spec, values, lost)
        case RankingConsistency():
            return _agreement(values, columns=len(spec.values))


def _range_of_arms(cells: Cells) -> Contrast:
    """The worst arm against the best one, with Holm's correction for all pairs of arms."""
    spread, means = pooled_variance(cells), [fmean(cell) for cell in cells]
    arms = range(len(cells))
    worst, best = max(arms, key=lambda n: means[n]), min(arms, key=lambda n: means[n])
    worst = worst if worst != best else (best + 1) % len(cells)
    pairs = [(worst, best)] + [(a, b) for a, b in combinations(arms, 2) if {a, b} != {worst, best}]
    contrasts = [contrast(cells, [(n == one) - (n == other) for n in arms], spread) for one, other in pairs]
    known = [found.p_value for found in contrasts if found.p_value is not None]
    return replace(contrasts[0], p_value=holm(known)[0] if known else None)


def _interaction(cells: Cells, columns: int) -> Contrast:
    """The mean size of the residuals of an additive table, with the F test of the interaction."""
    spread, means = pooled_variance(cells), [fmean(cell) for cell in cells]
    left = residuals(means, columns)
    # the residuals are linear in the means, and for given signs their mean size is, too
    signs = [(each > 0) - (each < 0) for each in left]
    weights = [each / len(cells) for each in residuals(signs, columns)]
    error = contrast(cells, weights, spread).standard_error
    return Contrast(fmean(map(abs, left)), error, interaction_p(cells, columns, spread))


def _difference_of_sides(spec: ThresholdTest, cells: Cells, lost: Set[int]) -> Contrast:
    """The mean of the arms that should be worse less the mean of the others."""
    kept = [n for n in range(len(cells)) if n not in lost]
    better = {n for n in kept if _is_above(spec, n) == (spec.better == "above")}
    weights = [-1 / len(better) if n in better else 1 / (len(kept) - len(better)) for n in kept]
    used = [cells[n] for n in kept]
    return contrast(used, weights, pooled_variance(used))


def _is_above(spec: ThresholdTest, nth: int) -> bool:
    value = spec.values[nth]
    return not isinstance(value, str) and value >= spec.cut


def _agreement(cells: Cells, columns: int) -> Contrast:
    """Kendall's W of the rankings of each context's arms."""
    found = _rankings(cells, columns)
    return Contrast(concordance(found), _jackknifed(cells, columns), concordance_p(found))


def _rankings(cells: Cells, columns: int) -> list[list[float]]:
    means = [fmean(cell) for cell in cells]
    return [ranks(means[start : start + columns]) for start in range(0, len(means), columns)]


def _jackknifed(cells: Cells, columns: int) -> float | None:
    """The standard error of W: each run is left out once (Tukey 1958)."""
    if min(map(len, cells)) < 2:
        return None
    found = [
        concordance(_rankings([*cells[:n], [*cell[:k], *cell[k + 1 :]], *cells[n + 1 :]], columns))
        for n, cell in enumerate(cells)
        for k in range(len(cell))
    ]
    return sqrt((len(found) - 1) / len(found) * sum((each - fmean(found)) ** 2 for each in found))


def _judged(test: RunningTest, effect: Contrast, level: float) -> ProtocolResult:
    threshold, decision = test.spec.decision_rule.threshold, decision_of(test)
    reaches = effect.effect >= threshold * (1 - 1e-9)
    unlikely = effect.p_value is not None and effect.p_value <= level
    wins = reaches and (decision == "threshold" or unlikely)
    outcome: Literal["win", "loss"] = "win" if wins else "loss"
    return ProtocolResult(outcome, effect.effect, effect.standard_error, effect.p_value)


# -- A hypothesis in the validation phase, which one test decides.

MOST_RUNS = 1000
"""Newest runs of a test that are kept while it goes on."""


def is_test(h: Hypothesis) -> bool:
    """Whether one test decides it."""
    return h.phase == "validation"


def running_test(
    test_spec: Mapping[str, Any] | None,
    reference_config: Mapping[str, Value],
    constraint: Mapping[str, Any],
    dimensions: Sequence[Dimension],
) -> RunningTest | None:
    """The test with the present dimensions; None: there is none, or the dimensions no longer allow it."""
    spec = spec_now(test_spec, dimensions)
    if spec is None:
        return None
    return RunningTest(spec, dimensions, reference_config, constraint)


def spec_now(test_spec: Mapping[str, Any] | None, dimensions: Sequence[Dimension]) -> Spec | None:
    """A test with the present dimensions; None: there is none, or they no longer allow it."""
    try:
        return None if test_spec is None else check_spec(test_spec, dimensions)
    except Invalid:
        return None


def after_test_run(
    h: Hypothesis, run: FinishedRun, before: Sequence[FinishedRun], test: RunningTest, now: float
) -> tuple[Hypothesis, list[FinishedRun]]:
    """A hypothesis after one more run of its test, with the runs to keep; settled once the test is complete."""
    runs = [*before, run][-MOST_RUNS:]
    judgement = verdict(test, [CellRun(each.config, each.judged) for each in runs if each.ended != "failed"])
    if judgement.outcome is None:
        return h, runs
    said = Evidence(
        experiment_id=run.experiment_id,
        worker_id=run.worker_id,
        outcome=float(judgement.outcome == "win"),
        against="test",
        contrast=judgement.effect,
    )
    return after_test(h, said, now), []
