"""When crashes in a row take a GPU out."""

from __future__ import annotations

import pytest

from functions.rules.pool.breaker import Trip, after_crash, may_try
from tests.functions.rules.sample import gpu


def test_the_crash_that_reaches_the_limit_opens_the_breaker() -> None:
    assert after_crash(gpu(consecutive_crashes=1), 3, 100.0) is None
    assert after_crash(gpu(consecutive_crashes=2), 3, 100.0) == Trip(
        "3 runs in a row have crashed on it", 100.0
    )


@pytest.mark.parametrize(
    ("trips", "out_s"), [(0, 100), (1, 200), (2, 400), (5, 3200), (6, 3600), (100_000, 3600)]
)
def test_each_time_it_opens_again_the_cool_down_doubles_up_to_an_hour(trips: int, out_s: float) -> None:
    trip = after_crash(gpu(consecutive_crashes=9, trips=trips), 2, 100.0)

    assert trip is not None
    assert trip.out_s == out_s


def test_a_crash_of_the_trial_opens_it_again_and_one_while_it_is_open_changes_nothing() -> None:
    trying = gpu(consecutive_crashes=3, trips=1)

    assert after_crash(trying, 3, 100.0) is not None
    assert after_crash(trying.model_copy(update={"tripped": "crashes"}), 3, 100.0) is None


def test_a_gpu_that_is_out_may_try_one_run_once_it_has_cooled_down() -> None:
    out = gpu(tripped="crashes", tripped_until=100.0)

    assert not may_try(out, 99.9)
    assert may_try(out, 100.0)
    assert not may_try(gpu(tripped_until=None), 100.0)
