"""When crashes in a row take a GPU out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.rules.pool.breaker import Breaker, Trip, is_probe, may_try
from state.records import Gpu
from tests.functions.rules.sample import experiment, gpu

FIVE = Breaker(5, 100.0)


def crashed(breaker: Breaker, *tags: str, trips: int = 0) -> tuple[Gpu, Trip | None]:
    """A GPU after a crash of each of these tags' runs, and what the last one did."""
    found, trip = gpu(trips=trips), None
    for tag in tags:
        after = breaker.after_crash(found, tag)
        found = found.model_copy(
            update={"consecutive_crashes": after.in_a_row, "crashed": dict(after.by_tag)}
        )
        trip = after.trip
    return found, trip


def test_crashes_of_two_tags_that_reach_the_limit_open_the_breaker() -> None:
    assert crashed(FIVE, *"abab")[1] is None
    found, trip = crashed(FIVE, *"ababa")
    assert trip == Trip("5 runs in a row have crashed on it", 100.0)
    assert found.crashed == {}


@given(st.integers(1, 9), st.integers(1, 50), st.integers(0, 9))
def test_no_tag_opens_it_alone_however_often_it_crashes(limit: int, times: int, trips: int) -> None:
    assert crashed(Breaker(limit, 100.0), *["a"] * times, trips=trips)[1] is None


def test_one_crash_of_another_tag_confirms_no_more_than_half_of_the_limit() -> None:
    assert crashed(FIVE, *"aaaaaaaab")[1] is None
    assert crashed(FIVE, *"aaaaaaaabb")[1] is not None


def test_a_probe_confirms_all_crashes_before_it() -> None:
    found, _ = crashed(FIVE, *"aaaaa")

    assert FIVE.wants_probe(found, "a")
    assert FIVE.after_crash(found, "a", is_probe=True).trip == Trip(
        "6 runs in a row have crashed on it", 100.0
    )
    assert FIVE.after_crash(crashed(FIVE, "a")[0], "a", is_probe=True).trip is None


def test_a_probe_is_wanted_where_one_tag_s_crashes_alone_reach_the_limit() -> None:
    assert not FIVE.wants_probe(crashed(FIVE, *"aaaab")[0], "a")
    assert not FIVE.wants_probe(crashed(FIVE, *"aaaaa")[0], "b")
    assert not FIVE.wants_probe(gpu(tripped="crashes", crashed={"a": 9}), "a")
    assert FIVE.wants_probe(crashed(FIVE, "a", trips=1)[0], "a")


def test_a_probe_is_a_further_run_of_a_baseline_that_a_worker_has_run() -> None:
    ran = experiment(baseline=True, status="keep", val_bpb=1.0, attempt=1)

    assert is_probe(ran)
    for other in (
        None,
        ran.model_copy(update={"baseline": False}),
        ran.model_copy(update={"val_bpb": None}),
        ran.model_copy(update={"attempt": 0}),
    ):
        assert not is_probe(other)


@pytest.mark.parametrize(
    ("trips", "out_s"), [(0, 100), (1, 200), (2, 400), (5, 3200), (6, 3600), (100_000, 3600)]
)
def test_each_time_it_opens_again_the_cool_down_doubles_up_to_an_hour(trips: int, out_s: float) -> None:
    _, trip = crashed(Breaker(2, 100.0), "a", "b", trips=trips)

    assert trip is not None
    assert trip.out_s == out_s


def test_crashes_of_two_tags_after_a_cool_down_open_it_again_and_one_while_it_is_open_changes_nothing() -> (
    None
):
    trying = gpu(consecutive_crashes=5, trips=1, crashed={"a": 1})

    assert FIVE.after_crash(trying, "a").trip is None
    assert FIVE.after_crash(trying, "b").trip is not None
    assert FIVE.after_crash(trying.model_copy(update={"tripped": "crashes"}), "b").trip is None


def test_a_gpu_that_is_out_may_try_runs_once_it_has_cooled_down() -> None:
    out = gpu(tripped="crashes", tripped_until=100.0)

    assert not may_try(out, 99.9)
    assert may_try(out, 100.0)
    assert not may_try(gpu(tripped_until=None), 100.0)
