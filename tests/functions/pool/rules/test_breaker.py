"""When crashes in a row take a GPU out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.pool.rules.leases import Breaker, is_probe, may_try
from state.decisions import GpuCrashes
from tests.functions.sample import experiment, gpu

BREAKER = Breaker(100.0)


def crashes(times: int, *, is_probe: bool = False, trips: int = 0) -> GpuCrashes:
    """What the last of so many crashes in a row does; the last one may be a probe's."""
    found = gpu(consecutive_crashes=times - 1, trips=trips)
    return BREAKER.after_crash(found, is_probe=is_probe)


@given(st.integers(1, 50), st.integers(0, 9))
def test_code_that_has_never_succeeded_takes_no_gpu_out(times: int, trips: int) -> None:
    assert crashes(times, trips=trips) == GpuCrashes(times)


def test_a_baseline_that_ran_before_and_crashes_after_so_many_crashes_takes_a_gpu_out() -> None:
    assert crashes(4, is_probe=True) == GpuCrashes(4)
    fifth = crashes(5, is_probe=True)
    assert fifth.trip_reason is not None
    assert fifth.trip_reason.startswith("5 runs in a row have crashed on it")
    assert fifth.trip_s == 100.0
    out = gpu(consecutive_crashes=5, tripped="crashes")
    assert BREAKER.after_crash(out, is_probe=True) == GpuCrashes(6)


def test_a_probe_is_wanted_once_so_many_runs_in_a_row_have_crashed() -> None:
    assert not BREAKER.wants_probe(gpu(consecutive_crashes=4))
    assert BREAKER.wants_probe(gpu(consecutive_crashes=5))
    assert BREAKER.wants_probe(gpu(consecutive_crashes=6, trips=1))
    assert not BREAKER.wants_probe(gpu(consecutive_crashes=6, tripped="crashes"))


def test_a_probe_is_a_further_run_of_a_baseline_that_a_worker_has_run() -> None:
    ran = experiment(baseline=True, status="keep", val_bpb=1.0, attempt=1)
    others = [ran.model_copy(update=to) for to in ({"baseline": False}, {"val_bpb": None}, {"attempt": 0})]
    assert is_probe(ran)
    assert not any(map(is_probe, [None, *others]))


@pytest.mark.parametrize(
    ("trips", "out_s"), [(0, 100), (1, 200), (2, 400), (5, 3200), (6, 3600), (100_000, 3600)]
)
def test_each_time_it_opens_again_the_cool_down_doubles_up_to_an_hour(trips: int, out_s: float) -> None:
    assert crashes(5, is_probe=True, trips=trips).trip_s == out_s


def test_a_gpu_that_is_out_may_try_runs_once_it_has_cooled_down() -> None:
    out = gpu(tripped="crashes", tripped_until=100.0)
    assert not may_try(out, 99.9)
    assert may_try(out, 100.0)
    assert not may_try(gpu(tripped_until=None), 100.0)
