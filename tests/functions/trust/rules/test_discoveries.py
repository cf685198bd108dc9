"""Keeps that hold at a false discovery rate."""

from __future__ import annotations

import math
import sys
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


@pytest.mark.parametrize(
    ("gain", "pairs", "noise", "least", "most"),
    [
        *((0.0, 4, SURE, 0, 0), (-3.0, 4, SURE, 0, 0), (9.0, 0, SURE, 0, 0)),
        (0.1, 1, Noise(0.0, 3), 1, 100),  # runs that never differed
        (1e6, 9, Noise(1e-6, 5000), 1, sys.float_info.max),
    ],
)
def test_evidence_is_finite_and_none_without_a_gain_and_a_pair(
    gain: float, pairs: int, noise: Noise, least: float, most: float
) -> None:
    assert least <= e_value(gain, pairs, noise) <= most


def test_the_weights_fall_and_never_sum_to_more_than_one() -> None:
    weights = [weight(place) for place in range(1, 5000)]
    assert weights == sorted(weights, reverse=True)
    assert 0.99 < math.fsum(weights) < 1


@pytest.mark.parametrize(
    ("values", "places", "pairs", "expected"),
    [
        # each keep is compared with the last that holds
        ([20.0, 18.5, 14.0, 13.0, 8.0], [1, 2, 3, 4], 1, "24"),
        # small gains hold together, and each alone with enough pairs
        *(([10.0, 8.0, 6.0, 4.0], [1, 2, 3], 1, "3"), ([10.0, 8.0, 6.0, 4.0], [1, 2, 3], 12, "123")),
        ([99.0, 1.0], [1], 0, ""),  # it did not run again
        # the more keeps precede one the more evidence it needs, and the less the more of them hold
        *(([5.1, 0.0], [1], 1, "1"), ([5.1, 0.0], [60], 1, "")),
        *(([30.0, 20.0, 10.0, 4.2], [1, 2, 25], 1, "123"), ([10.0, 4.2], [25], 1, "")),
    ],
)
def test_which_keeps_hold(values: list[float], places: list[int], pairs: int, expected: str) -> None:
    known = {str(n): value for n, value in enumerate(values)}
    keeps = [(str(n), place) for n, place in enumerate(places, 1)]
    assert discoveries("0", keeps, over(known, pairs), SURE) == [*expected]
    assert discoveries("0", keeps, lambda *_: None, SURE) == []


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
