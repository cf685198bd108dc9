"""A gain compares two experiments on the same seeds."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from functions.experiments.rules.gains import gain_over
from functions.fold import CONTRADICTED
from state.facts import Runs
from state.records import Direction, OneRun

Figures = tuple[float, float, float, int]
SECOND, THIRD = 104_729, 209_458


def run(name: str, value: float | None, seed: int | None = None, **more: Any) -> OneRun:
    fields = {"experiment_id": name, "status": "keep", "val_bpb": value, "seed": seed} | more
    return OneRun.model_validate(fields)


def runs(
    name: str, first: float | None, again: Mapping[int, float] = MappingProxyType({}), **more: Any
) -> Runs[OneRun]:
    """An experiment that measured this, and what it measured when it ran again on these seeds."""
    retests = [
        run(f"{name}.{nth}", value, seed, status="measured")
        for nth, (seed, value) in enumerate(again.items(), 2)
    ]
    return Runs(run(name, first, **more), tuple(retests))


def figures(
    before: Runs[OneRun] | None, after: Runs[OneRun], direction: Direction = "minimize"
) -> Figures | None:
    """A gain as before, after, by how much, and the further runs of each."""
    found = gain_over(before, after, direction)
    if found is None:
        return None
    return round(found.before, 9), round(found.after, 9), round(found.by, 9), found.runs


# by the mean of the best and the first run of the baseline it would be 1.035
BASELINE, BEST = runs("t-1", 2.0, {SECOND: 1.975}), runs("t-9", 1.036, {SECOND: 0.965})


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (BASELINE, BEST, (1.975, 0.965, 1.01, 1)),
        (BASELINE, runs("t-9", 1.036), (2.0, 1.036, 0.964, 0)),
        (runs("t-1", 2.0), BEST, (2.0, 1.036, 0.964, 0)),
        (
            runs("t-1", 2.0, {SECOND: 1.9, THIRD: 1.8}),
            runs("t-9", 1.0, {SECOND: 1.4, THIRD: 1.5}),
            (1.85, 1.45, 0.4, 2),
        ),
        (runs("t-1", 2.0, {SECOND: 1.9, THIRD: 1.8}), runs("t-9", 1.0, {THIRD: 1.5}), (1.8, 1.5, 0.3, 1)),
        (runs("t-1", 2.0, seed=7), runs("t-9", 1.0, seed=8), None),
        (runs("t-1", 2.0, {SECOND: 1.9}), runs("t-9", 1.4, seed=SECOND), (1.9, 1.4, 0.5, 0)),
        (runs("t-1", 2.0), runs("t-9", None), None),
        (runs("t-1", 2.0), runs("t-9", 1.0, {SECOND: 1.9}, reason=CONTRADICTED), None),
        (runs("t-1", 2.0), runs("t-9", 1.0, claimed=True), None),
    ],
    ids=[
        *("the best ran again", "the best ran once", "the baseline ran once", "the mean of both"),
        *("the seeds that both have", "no seed in common", "a first run on the other's second seed"),
        *("no value", "a first run that further runs contradict", "a claim that the lab has not measured"),
    ],
)
def test_a_gain_is_of_equal_seeds(
    before: Runs[OneRun], after: Runs[OneRun], expected: Figures | None
) -> None:
    assert figures(before, after) == expected


def test_a_gain_is_above_zero_where_more_is_better() -> None:
    assert figures(runs("t-1", 0.5), runs("t-2", 0.75), "maximize") == (0.5, 0.75, 0.25, 0)


def test_a_claim_is_compared_on_the_seed_on_which_the_lab_has_measured_it() -> None:
    measured = run("t-2.2", 1.4, SECOND, status="measured")
    claim = Runs(run("t-2", 1.4, claimed=True, measured_by="t-2.2"), (measured,))
    assert figures(runs("t-1", 2.0, {SECOND: 1.9}), claim) == (1.9, 1.4, 0.5, 0)
    assert figures(runs("t-1", 2.0), claim) is None


def test_a_swarm_s_run_without_a_best_before_it_is_compared_with_its_worker_s_baseline() -> None:
    once = runs("s-1", 1.0, delta_bpb=-0.2)
    again = run("s-1.2", 1.1, SECOND, status="measured", delta_bpb=-0.1)
    assert figures(None, once) == (0.0, -0.2, 0.2, 0)
    assert figures(None, Runs(once.experiment, (again,))) == (0.0, -0.1, 0.1, 1)
