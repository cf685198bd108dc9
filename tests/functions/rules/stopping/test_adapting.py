"""The rule that stops the more, the better a run's place has foretold its end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.rules.stopping.judging import Checkpoint, judge, was_spared
from functions.rules.stopping.ranks import PeerRank
from functions.rules.stopping.stoppers import SURE, UNSURE, UNSURE_UNTIL, adaptive, looks_at, most
from state.facts import NO_TREND, Trend
from state.policy import BUCKETS, EARLY, FIFTHS, Stopping
from tests.functions.rules.sample import experiment

ADAPTIVE = Stopping(rule="adaptive")
RUNS = 190
"""As many as early stopping was tried with on one kind of curves: 5 % of them are about ten."""


def told(r: float, runs: int = 200) -> Trend:
    """The sums of runs whose places at a bucket and at the end have this correlation."""
    return Trend(runs, 0.0, 0.0, runs, runs, r * runs)


def at(place: float, trend: Trend, **more: object) -> PeerRank:
    worse = round(RUNS * place)
    return PeerRank(RUNS - worse, 0, worse, trend=trend, **more)  # type: ignore[arg-type]


def cut(r: float, bucket: float) -> float:
    """The share of the runs, the worst ones, that are stopped for sure."""
    return max(
        (n / 100 for n in range(100) if adaptive(at(n / 100, told(r)), bucket, ADAPTIVE) == SURE), default=0
    )


def test_the_higher_the_correlation_the_more_are_stopped() -> None:
    cuts = [cut(r, 0.4) for r in (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99)]

    assert cuts == sorted(cuts)
    assert cuts[0] == 0
    assert 0.2 < cuts[3] < 0.7
    assert cuts[-1] == pytest.approx(most(0.4), abs=0.01)


@pytest.mark.parametrize("bucket", [0.2, 0.4])
def test_the_more_runs_there_are_the_fewer_of_their_best_are_spared(bucket: float) -> None:
    def cut_among(runs: int) -> float:
        chances = [
            adaptive(PeerRank(runs - n, 0, n, trend=told(0.97)), bucket, ADAPTIVE) for n in range(runs)
        ]
        return chances.count(SURE) / runs

    few, usual, many = cut_among(100), cut_among(199), cut_among(2000)

    assert few == pytest.approx(usual, abs=0.02)
    assert usual == pytest.approx(most(bucket), abs=0.02)
    assert usual < many < 0.99


@pytest.mark.parametrize("bucket", BUCKETS)
def test_where_places_foretell_little_only_some_of_the_worst_third_are_stopped_early(bucket: float) -> None:
    chances = {n: adaptive(at(n / 100, told(0.1)), bucket, ADAPTIVE) for n in range(1, 100)}

    expected = UNSURE if bucket <= UNSURE_UNTIL else 0.0
    assert {chance for n, chance in chances.items() if n < 33} == {expected}
    assert {chance for n, chance in chances.items() if n > 33} == {0.0}


@pytest.mark.parametrize("trend", [NO_TREND, told(0.9, runs=14), told(-0.5)])
def test_nothing_is_stopped_where_too_few_have_ended_or_early_leaders_end_last(trend: Trend) -> None:
    assert adaptive(at(0.0, trend), 0.1, ADAPTIVE) == 0.0


def test_a_run_that_was_spared_goes_on_to_its_end() -> None:
    assert adaptive(at(0.0, told(0.9)), 0.2, ADAPTIVE) == SURE
    assert adaptive(at(0.0, told(0.9), was_spared=True), 0.2, ADAPTIVE) == 0.0


def test_a_run_was_spared_that_might_have_been_stopped_at_an_earlier_bucket() -> None:
    e = experiment(ranked={"0.1": (5.0, 0.75), "0.2": (50.0, 0.0)})

    assert [was_spared(e, bucket) for bucket in (0.1, 0.2, 0.4)] == [False, True, True]
    assert not was_spared(experiment(ranked={"0.1": (50.0, 0.0)}), 0.2)
    assert not was_spared(experiment(), 0.2)


def test_runs_that_were_stopped_before_count_as_worse() -> None:
    half = PeerRank(50, 0, 50, trend=told(0.9))
    best_of_those_left = PeerRank(50, 0, 50, stopped=400, trend=told(0.9))

    assert adaptive(half, 0.4, ADAPTIVE) == SURE
    assert adaptive(best_of_those_left, 0.4, ADAPTIVE) == 0.0


@given(
    r=st.floats(-0.999, 0.999),
    runs=st.integers(0, 10_000),
    bucket=st.sampled_from(FIFTHS),
    places=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_a_better_place_is_never_likelier_to_be_stopped(
    r: float, runs: int, bucket: float, places: tuple[float, float]
) -> None:
    worse, better = (adaptive(at(place, told(r, runs)), bucket, ADAPTIVE) for place in sorted(places))

    assert 0 <= better <= worse < 1


def test_no_run_is_stopped_at_its_end_however_much_is_known() -> None:
    assert judge(Checkpoint(1.0, at(0.0, told(0.99)), 1000), 0.0, ADAPTIVE).told == "continue"


def test_only_this_rule_looks_at_runs_before_their_first_fifth() -> None:
    assert [
        rule for rule in ("none", "stochastic", "median", "asha", "adaptive") if looks_at(rule, EARLY)
    ] == ["adaptive"]
    assert [rule for rule in ("none", "stochastic", "median", "asha", "adaptive") if looks_at(rule, 0.2)] == [
        "stochastic",
        "median",
        "asha",
        "adaptive",
    ]
