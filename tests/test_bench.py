"""Benchmarks that need no lab: what they show of the rules is still so, on fewer nights and in wider bounds."""

from __future__ import annotations

import pytest

from bench.keeps import AGAIN, ALONE, FALSE, GAIN, KEPT, OVER, PAIRED, Found, Night, simulate

NIGHTS = 40


def lived(sigma: float, paired: float, *, identical: bool = False) -> tuple[Found, Found]:
    """The same nights under the greedy and under the confirmed rule."""
    nights = [Night.drawn(seed, paired, identical) for seed in range(NIGHTS)]
    found = simulate(ALONE, nights, sigma)
    return found["greedy"], found["confirmed"]


@pytest.mark.parametrize("paired", [0.0, PAIRED])
@pytest.mark.parametrize(
    ("sigma", "most_false", "least_gain", "most_overstated"),
    [(0.0006, 0.21, 0.90, 0.0009), (0.0012, 0.28, 0.95, 0.0020)],
)
def test_a_night_of_confirmed_keeping_gains_what_greedy_keeping_gains_with_half_of_the_false_keeps(
    sigma: float, paired: float, most_false: float, least_gain: float, most_overstated: float
) -> None:
    greedy, confirmed = lived(sigma, paired)

    assert confirmed.rate(FALSE, KEPT)[0] <= min(most_false, 0.6 * greedy.rate(FALSE, KEPT)[0])
    assert confirmed.mean(GAIN)[0] >= least_gain * greedy.mean(GAIN)[0]
    assert confirmed.mean(OVER)[0] <= min(most_overstated, 0.6 * greedy.mean(OVER)[0])
    assert 0.05 <= confirmed.mean(AGAIN)[0] <= 0.15


@pytest.mark.parametrize("paired", [0.0, PAIRED])
def test_confirmed_keeping_keeps_half_as_often_what_is_the_same_code(paired: float) -> None:
    greedy, confirmed = lived(0.0006, paired, identical=True)

    assert greedy.mean(FALSE)[0] == greedy.mean(KEPT)[0] > 4
    assert confirmed.mean(FALSE)[0] <= 0.5 * greedy.mean(FALSE)[0]
