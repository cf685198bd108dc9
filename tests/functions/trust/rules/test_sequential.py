"""The sequential test of a certificate."""

from __future__ import annotations

import itertools
import math

import pytest

from functions.trust.rules.sequential import decided, e_values, paired_gain


@pytest.mark.parametrize("sizes", [[1.0] * 9, [0.1, 5.0, 0.0, 2.0, 1e-6, 3.0], [1e300, 1.0, 1e-300]])
def test_the_mean_e_value_over_all_signs_is_one_whatever_the_sizes(sizes: list[float]) -> None:
    ends = [
        e_values([s * size for s, size in zip(signs, sizes, strict=True)])[-1]
        for signs in itertools.product((-1, 1), repeat=len(sizes))
    ]
    assert sum(ends) / len(ends) == pytest.approx(1.0)


def test_a_stop_at_any_time_keeps_the_false_rate_of_all_signs_below_alpha() -> None:
    runs = [decided(signs, 0.05, 12)[0] for signs in itertools.product((-1.0, 1.0), repeat=12)]
    assert 0 < runs.count("certified") / len(runs) <= 0.05


def test_equal_gains_are_certified_by_the_seventh_pair_and_nothing_is_before() -> None:
    assert decided([0.001] * 6, 0.01, 30)[0] == "running"
    assert decided([0.001] * 7, 0.01, 30)[0] == "certified"
    assert decided([1.0] * 8 + [-1.0] * 20, 0.01, 30)[0] == "certified"  # whatever comes after it


def test_losses_are_refused_and_ties_are_inconclusive_as_soon_as_too_few_pairs_are_left() -> None:
    assert decided([-1.0, -1.0, -1.0, -1.0], 0.01, 30)[0] == "refused"
    assert [decided([0.0] * n, 0.01, 30)[0] for n in (23, 24)] == ["running", "inconclusive"]
    assert decided([], 0.01, 30) == ("running", 1.0)


def test_rounding_is_no_gain() -> None:
    assert 0.995 - 0.993 - 0.002 != 0.0
    assert paired_gain(0.995, 0.993, 0.002) == 0.0
    assert paired_gain(1.0, 0.5, 0.1) == pytest.approx(0.4)


def test_a_huge_loss_takes_everything_and_overflows_nothing() -> None:
    assert e_values([1e-9] * 5 + [-1e9])[-1] < 0.5
    assert math.isfinite(e_values([1e308])[0])
