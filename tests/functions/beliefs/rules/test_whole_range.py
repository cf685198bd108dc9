"""A dimension is irrelevant if it changes nothing in any part of its range, whatever its workers' baselines are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.beliefs.rules.learning import BeliefState, after_run
from functions.beliefs.rules.terms import BeliefTerms
from functions.beliefs.rules.whole_range import ENOUGH_REPEATS, e_value_within
from state.records import Hypothesis, Value
from tests.functions.beliefs.rules.sample import REFERENCE, influence, reference, run
from tests.functions.swarm.rules.sample import dimension

LR = dimension("LR", "float_log", min=1e-5, max=1e-1)
DEPTH = dimension("DEPTH", "int", min=7, max=9)
OPTIMIZER = dimension("OPTIMIZER", "categorical", categories=["adam", "sgd", "lion"])
SIGMA = 0.01
TERMS = BeliefTerms(
    sigma=SIGMA, usual_distance=SIGMA, repeats=ENOUGH_REPEATS, dimensions=[LR, DEPTH, OPTIMIZER], workers=9
)
ANYWHERE = (2e-5, 2e-3, 5e-2)
"""A learning rate at either end, and one between."""
WORKERS = ("w1", "w2", "w3")


def after_runs(
    values: Sequence[Value],
    *,
    name: str = "LR",
    effect: Callable[[Value], float] = lambda value: 0.0,
    n: int = 120,
    terms: BeliefTerms = TERMS,
    start: Hypothesis | None = None,
    error: float = 0.0,
    luck: float = SIGMA,
    references: int = 1,
) -> Hypothesis:
    """The claim that a dimension matters after `n` runs that take these values by turns, with reference runs beside
    them; `error` is by how much the workers' baselines lie apart."""
    chance = np.random.default_rng(7)
    known = BeliefState(start or influence(dimensions=[name]))
    for k in range(n):
        worker, value = WORKERS[k // len(values) % len(WORKERS)], values[k % len(values)]
        off = error * WORKERS.index(worker)
        noise = chance.normal(0.0, luck, 2)
        if k % references == 0:
            beside = reference(f"r{k}", worker_id=worker, judged=off + noise[0])
            known = after_run(beside, replace(known, unused=[*known.unused, beside]), terms, 9.0)
        config = {**REFERENCE, name: value}
        judged = off + noise[1] + effect(value)
        known = after_run(run(f"c{k}", worker_id=worker, config=config, judged=judged), known, terms, 9.0)
    return known.hypothesis


def test_a_dimension_that_changes_nothing_anywhere_is_irrelevant() -> None:
    assert after_runs(ANYWHERE).settled == "irrelevant"


def test_runs_near_the_reference_config_say_nothing_of_the_whole_range() -> None:
    assert after_runs([0.0011, 0.0012, 0.0009], n=400).settled is None
    assert after_runs([2e-5, 0.0012], n=400).settled is None


@pytest.mark.parametrize("end", ANYWHERE)
def test_a_dimension_that_matters_in_one_part_of_its_range_is_not_irrelevant(end: float) -> None:
    there = after_runs(ANYWHERE, effect=lambda value: 1.5 * SIGMA * (value == end), n=400)
    assert there.settled != "irrelevant"


@pytest.mark.parametrize(
    ("name", "values", "settled"),
    [
        ("OPTIMIZER", ["sgd", "lion"], "irrelevant"),
        ("OPTIMIZER", ["sgd"], None),
        ("DEPTH", [7, 9], "irrelevant"),  # the reference config has the third
        ("DEPTH", [7], None),
    ],
)
def test_each_category_or_number_needs_evidence(name: str, values: list[Value], settled: str | None) -> None:
    assert after_runs(values, name=name).settled == settled


def test_nothing_is_irrelevant_while_the_noise_is_hardly_known() -> None:
    assert after_runs(ANYWHERE, terms=replace(TERMS, sigma=None, repeats=0)).settled is None
    assert after_runs(ANYWHERE, terms=replace(TERMS, repeats=ENOUGH_REPEATS - 1)).settled is None


def test_a_claim_of_two_dimensions_needs_evidence_in_each_combination() -> None:
    both = influence(dimensions=["LR", "OPTIMIZER"])
    assert after_runs(ANYWHERE, start=both, n=400).settled is None


@given(mean=st.floats(-0.9, 0.9), variance=st.floats(0.01, 1.0))
def test_the_e_value_is_a_likelihood_ratio_mixed_over_less(mean: float, variance: float) -> None:
    def density(true: float) -> float:
        return math.exp(-((abs(mean) - true) ** 2) / (2 * variance))

    smaller = np.linspace(0.0, 1.0, 2001)
    mixed = float(np.trapezoid([density(true) for true in smaller], smaller))

    assert e_value_within(mean, variance, 1.0) == pytest.approx(mixed / density(1.0), rel=1e-4)
