"""Noise: what repeats tell about it, and what it leaves of a margin."""

from __future__ import annotations

import math
import statistics
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.experiments.rules.opening import first_policy
from functions.experiments.rules.verdict import LARGEST
from functions.trust.rules.noise import (
    Mean,
    Repeats,
    is_outlier,
    near_margin,
    p_better,
    parsed,
    pooled,
    run_again,
    usual_distance,
    written,
)
from state.facts import Noise, Spread
from state.policy import Policy
from state.records import Direction
from state.settings import Settings

VALUES = st.floats(-LARGEST, LARGEST)
NEAR = st.floats(0.9, 1.1)
RUNS = st.integers(1, 50)
NOISES = st.builds(Noise, st.floats(0, 1), st.integers(1, 10_000))
DIRECTIONS: st.SearchStrategy[Direction] = st.sampled_from(["minimize", "maximize"])


@pytest.fixture(scope="module", autouse=True)
def scipy_is_there() -> None:
    """The first probability takes a second, which is no example's fault."""
    p_better(Mean(1.0), Mean(2.0), Noise(1.0, 1), "minimize")


def test_groups_of_different_code_share_their_noise_but_not_their_means() -> None:
    assert pooled([[0.98], [0.97], []]) is None
    noise = pooled([[1.0, 1.2], [5.0], [9.0, 9.1, 9.2]])
    assert noise is not None
    assert noise.df == 3
    assert noise.sigma**2 == pytest.approx((1 * 0.02 + 2 * 0.01) / 3)


@given(st.lists(st.lists(VALUES, max_size=4), max_size=4))
def test_the_noise_is_a_number_whatever_was_measured(groups: list[list[float]]) -> None:
    noise = pooled(groups)
    assert noise is None or (0 <= noise.sigma < math.inf and noise.df >= 1)


@given(NEAR | VALUES, NEAR | VALUES, RUNS, RUNS, NOISES, DIRECTIONS)
def test_a_probability_has_those_of_the_other_side_and_direction_and_is_even_for_equal_means(
    value: float, other: float, runs: int, others: int, noise: Noise, direction: Direction
) -> None:
    mine = p_better(Mean(value, runs), Mean(other, others), noise, direction)
    theirs = p_better(Mean(other, others), Mean(value, runs), noise, direction)
    opposite: Direction = "maximize" if direction == "minimize" else "minimize"

    assert 0 <= mine <= 1
    assert mine + theirs == pytest.approx(1)
    assert p_better(Mean(-value, runs), Mean(-other, others), noise, opposite) == mine
    assert p_better(Mean(value, runs), Mean(value, others), noise, direction) == 0.5


def test_more_runs_and_more_degrees_of_freedom_are_surer_of_the_same_margin() -> None:
    once = p_better(Mean(0.970), Mean(0.971), Noise(0.001, 3), "minimize")
    assert 0.5 < once < p_better(Mean(0.970, 2), Mean(0.971, 2), Noise(0.001, 3), "minimize")
    assert 0.5 < once < p_better(Mean(0.970), Mean(0.971), Noise(0.001, 30), "minimize")


def test_it_agrees_with_the_table_of_student_s_t() -> None:
    for df, one_sided_95 in ((1, 6.313752), (5, 2.015048)):
        ahead = Mean(one_sided_95 * math.sqrt(2))
        assert p_better(ahead, Mean(0.0), Noise(1.0, df), "maximize") == pytest.approx(0.95)


def test_nobody_waits_for_scipy_who_does_not_ask_for_a_probability() -> None:
    look = "import functions.trust.rules.noise, sys; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-P", "-c", look], check=False).returncode == 0


def test_a_run_that_went_wrong_is_an_outlier_and_one_that_noise_explains_is_not() -> None:
    before = Repeats(3, 1.0, 2e-7)
    assert is_outlier(before, 6.5, Noise(0.0003, 2))
    assert is_outlier(before, 0.99, Noise(0.0003, 8))
    assert not is_outlier(before, 0.99, Noise(0.0003, 2))  # three runs do not know their noise that well
    assert not is_outlier(before, 1.001, Noise(0.0003, 8))
    assert not is_outlier(before, 6.5, Noise(0.0, 2))


OTHERS = Spread(10, 10 * 0.001**2)
"""Noise of 0.001 among other code."""


def folded(values: list[float], others: Spread = OTHERS) -> tuple[Repeats, Spread]:
    """The runs of one code, and what they have changed of the noise."""
    runs: Repeats | None = None
    sums = Spread()
    for value in values:
        runs, learned = run_again(parsed(written(runs)) if runs else None, value, others)
        sums = sums.with_(learned)
    assert runs is not None
    return runs, sums


@given(st.lists(st.floats(0.9995, 1.0005), min_size=1, max_size=20))
def test_a_contradicted_first_run_leaves_what_the_others_make_without_it(further: list[float]) -> None:
    runs, sums = folded([0.0001, *further])

    assert runs.is_contradicted
    assert runs.runs == len(further)
    assert runs.mean == pytest.approx(statistics.fmean(further))
    assert sums.df == len(further) - 1
    assert sums.squares == pytest.approx(statistics.pvariance(further) * len(further), abs=1e-12)
    assert runs.df == sums.df
    assert runs.pooled == pytest.approx(sums.squares, abs=1e-12)


def test_a_first_run_that_few_others_contradicted_leaves_once_more_are_known() -> None:
    alone = Spread()
    before, learned = folded([0.0001, 2.83], alone)
    after, in_all = folded([0.0001, 2.83, 2.831], alone)
    assert (before.is_contradicted, learned.df) == (False, 1)
    assert (after.is_contradicted, in_all.df) == (True, 1)
    assert in_all.squares == pytest.approx(5e-7)


@given(df=st.integers(1, 400))
def test_the_usual_distance_is_that_of_half_of_all_pairs_once_the_noise_is_well_known(df: int) -> None:
    distance = usual_distance(Noise(0.01, df))
    assert distance > 0.0095
    assert usual_distance(Noise(0.02, df)) == pytest.approx(2 * distance)
    assert usual_distance(Noise(0.01, 10**6)) == pytest.approx(0.01 * math.sqrt(2) * 0.67449, rel=2e-3)
    assert usual_distance(Noise(0.0, df)) == 0


@pytest.mark.parametrize(
    ("of_policy", "noise", "margin"),
    [
        *((None, None, 0.002), (None, Noise(0.0006, 9), 0.002), (None, Noise(0.02, 2), 0.02 * 2**0.5)),
        *((0.0, Noise(0.02, 2), 0.0), (0.002, Noise(0.02, 2), 0.002), (0.5, None, 0.5)),
    ],
)
def test_the_margin_is_the_policy_s_else_one_sigma_of_a_difference_and_at_least_two_thousandths(
    of_policy: float | None, noise: Noise | None, margin: float
) -> None:
    assert near_margin(Policy(near_miss_margin=of_policy), noise) == pytest.approx(margin)


def test_a_lab_s_setting_gives_new_tags_a_margin_that_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    unset = Settings().near_miss_threshold
    monkeypatch.setenv("NEAR_MISS_THRESHOLD", "0.002")
    given = Settings().near_miss_threshold
    margins = [first_policy(each, 3).near_miss_margin for each in (unset, given)]
    assert margins == [None, 0.002]
