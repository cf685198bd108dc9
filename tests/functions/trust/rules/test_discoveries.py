"""Keeps that hold at a false discovery rate."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import t as student

from functions.experiments.rules.gains import Gain
from functions.trust.rules.discoveries import discoveries, e_value, weight
from functions.trust.rules.noise import pooled
from state.facts import Noise

SURE = Noise(1.0, 60)


def over(values: dict[str, float], pairs: int = 1) -> Callable[[str, str], Gain]:
    """Compare by these values, lower is better, in means of so many runs."""
    return lambda last, name: Gain(values[last], values[name], values[last] - values[name], pairs)


def placed(*names: str) -> list[tuple[str, int]]:
    return [(name, place) for place, name in enumerate(names, 1)]


@pytest.mark.parametrize("df", [1, 2, 3, 8, 40, 400])
@pytest.mark.parametrize("pairs", [1, 2, 5, 20])
def test_the_mean_e_value_of_no_gain_is_at_most_one_whatever_measured_sigma(df: int, pairs: int) -> None:
    noise = Noise(0.3, df)
    error = 0.3 * math.sqrt(2 / pairs)

    def part(t: float) -> float:
        return e_value(t * error, pairs, noise) * float(student.pdf(t, df))

    mean = sum(quad(part, low, high, limit=500)[0] for low, high in ((0, 5), (5, 50), (50, math.inf)))
    assert 0.5 < mean <= 1 + 1e-6


@pytest.mark.parametrize("repeats", [1, 3, 10])
def test_a_stop_at_the_first_large_e_value_leaves_its_mean_at_most_one(repeats: int) -> None:
    chance = np.random.default_rng(repeats)
    ends = []
    for _ in range(1500):
        code, e = list(chance.normal(size=repeats + 1)), 0.0
        ahead, behind = list[float](), list[float]()
        for _ in range(8):
            ahead.append(chance.normal())
            behind.append(chance.normal())
            noise = pooled([code, ahead, behind])
            assert noise is not None
            e = e_value(float(np.mean(behind) - np.mean(ahead)), len(ahead), noise)
            if e > 3:
                break
        ends.append(e)

    assert np.mean(ends) <= 1.0
    assert np.mean([e > 3 for e in ends]) <= 1 / 3


def test_the_e_value_has_no_unit() -> None:
    assert e_value(3e-5, 2, Noise(1e-5, 9)) == pytest.approx(e_value(3.0, 2, Noise(1.0, 9)))


@given(st.floats(0, 30), st.floats(0.001, 10), st.integers(1, 20), st.integers(1, 500))
def test_a_larger_gain_is_never_less_evidence(gain: float, more: float, pairs: int, df: int) -> None:
    noise = Noise(1.0, df)
    assert e_value(gain, pairs, noise) <= e_value(gain + more, pairs, noise) * (1 + 1e-9)


def test_the_same_gain_is_more_evidence_from_more_runs_and_from_a_better_known_sigma() -> None:
    assert e_value(2.0, 1, SURE) < e_value(2.0, 4, SURE) < e_value(2.0, 9, SURE)
    assert e_value(6.0, 1, Noise(1.0, 2)) < e_value(6.0, 1, Noise(1.0, 9)) < e_value(6.0, 1, SURE)


@pytest.mark.parametrize(("gain", "pairs"), [(0.0, 4), (-3.0, 4), (9.0, 0)])
def test_no_gain_and_no_pair_are_no_evidence(gain: float, pairs: int) -> None:
    assert e_value(gain, pairs, SURE) == 0.0


def test_runs_that_never_differed_and_huge_gains_give_finite_evidence() -> None:
    assert 1 < e_value(0.1, 1, Noise(0.0, 3)) < 100
    assert math.isfinite(e_value(1e6, 9, Noise(1e-6, 5000)))


def test_the_weights_fall_and_never_sum_to_more_than_one() -> None:
    weights = [weight(place) for place in range(1, 5000)]
    assert weights == sorted(weights, reverse=True)
    assert 0.99 < math.fsum(weights) < 1


def test_each_keep_is_compared_with_the_last_that_holds() -> None:
    values = {"base": 20.0, "a": 18.5, "b": 14.0, "c": 13.0, "d": 8.0}
    assert discoveries("base", placed("a", "b", "c", "d"), over(values), SURE) == ["b", "d"]


def test_small_gains_hold_together_and_each_alone_with_enough_pairs() -> None:
    values = {"base": 10.0, "a": 8.0, "b": 6.0, "c": 4.0}
    assert discoveries("base", placed("a", "b", "c"), over(values), SURE) == ["c"]
    assert discoveries("base", placed("a", "b", "c"), over(values, 12), SURE) == ["a", "b", "c"]


def test_keeps_that_cannot_be_compared_or_did_not_run_again_never_hold() -> None:
    first_runs = {"base": 99.0, "a": 1.0}
    assert discoveries("base", placed("a"), over(first_runs, 0), SURE) == []
    assert discoveries("base", placed("a"), lambda *_: None, SURE) == []


def test_a_keep_that_others_precede_needs_more_evidence_and_one_after_others_that_hold_less() -> None:
    assert discoveries("base", [("a", 1)], over({"base": 5.1, "a": 0.0}), SURE) == ["a"]
    assert discoveries("base", [("a", 60)], over({"base": 5.1, "a": 0.0}), SURE) == []
    values = {"base": 30.0, "a": 20.0, "b": 10.0, "c": 4.2}
    assert discoveries("base", [("a", 1), ("b", 2), ("c", 25)], over(values), SURE) == ["a", "b", "c"]
    assert discoveries("base", [("c", 25)], over({"base": 10.0, "c": 4.2}), SURE) == []


@given(st.lists(st.floats(-20, 20), max_size=12), st.integers(1, 5), st.floats(0.01, 0.3))
def test_what_holds_is_in_order_and_grows_by_the_rate(values: list[float], pairs: int, rate: float) -> None:
    known = {"base": 0.0} | {str(n): value for n, value in enumerate(values)}
    keeps = placed(*list(known)[1:])

    found = discoveries("base", keeps, over(known, pairs), SURE, rate)

    assert found == [name for name, _ in keeps if name in found]
    assert sorted((known[name] for name in ("base", *found)), reverse=True) == [
        known[name] for name in ("base", *found)
    ]
    assert bool(found) <= bool(discoveries("base", keeps, over(known, pairs), SURE, 2 * rate))


def test_code_that_changes_nothing_holds_in_a_small_part_of_many_nights() -> None:
    chance = np.random.default_rng(5)
    false = 0
    for _ in range(2000):
        values = dict(zip(["base", *map(str, range(12))], chance.normal(size=13).tolist(), strict=True))
        noise = pooled([chance.normal(size=4).tolist()])
        assert noise is not None
        false += bool(discoveries("base", placed(*list(values)[1:]), over(values), noise))

    assert false / 2000 <= 0.1
