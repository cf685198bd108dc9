"""Evidence that stays valid however often one looks at it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from functions.rules.beliefs.evalues import ENOUGH, e_value, e_values

COUNTS = st.integers(0, 80)


@given(against=COUNTS, for_it=COUNTS)
def test_an_e_value_is_the_mixture_of_likelihood_ratios(against: int, for_it: int) -> None:
    def ratio(p: float) -> float:
        return math.exp(math.log(2) * (against + for_it + 1)) * p**for_it * (1 - p) ** against

    peak = min(max(for_it / (against + for_it), 0.5), 1.0) if against + for_it else 0.75
    mixed = quad(ratio, 0.5, peak)[0] + quad(ratio, peak, 1)[0]

    assert e_value(against, for_it) == pytest.approx(mixed, rel=1e-6)


@given(against=COUNTS, for_it=COUNTS, chance=st.floats(0, 0.5))
def test_no_outcome_is_expected_to_raise_it_where_the_null_hypothesis_holds(
    against: int, for_it: int, chance: float
) -> None:
    now = e_value(against, for_it)
    expected = chance * e_value(against, for_it + 1) + (1 - chance) * e_value(against + 1, for_it)

    assert expected <= now * (1 + 1e-9)
    if chance == 0.5:
        assert expected == pytest.approx(now)


def test_it_begins_at_one_and_stays_finite() -> None:
    assert e_value(0, 0) == pytest.approx(1)
    assert e_value(0, 5) == pytest.approx((2**6 - 1) / 6)
    assert e_value(10_000, 0) < 1e-4
    assert math.isfinite(e_value(0, 10_000))


@given(wins=COUNTS, losses=COUNTS, stopped=st.integers(1, 20))
def test_runs_that_were_stopped_count_against_each_claim(wins: int, losses: int, stopped: int) -> None:
    without, having = e_values(wins, losses), e_values(wins, losses, stopped)

    assert having.supported < without.supported
    assert having.refuted < without.refuted
    assert e_values(wins, losses).supported == e_values(losses, wins).refuted


def test_a_fair_coin_seldom_reaches_it() -> None:
    chance = np.random.default_rng(4)
    wins = np.cumsum(chance.random((4000, 200)) < 0.5, axis=1)
    n = np.arange(1, 201)
    worth = {(a, f): e_value(a, f) for a in range(201) for f in range(201 - a)}

    reached = [any(worth[int(k - w), int(w)] >= ENOUGH for k, w in zip(n, row, strict=True)) for row in wins]

    assert np.mean(reached) <= 1 / ENOUGH
