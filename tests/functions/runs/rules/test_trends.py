"""How well places at a bucket have foretold places at the end, though the worst runs have none."""

from __future__ import annotations

import math
import random
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.runs.rules.stopping import (
    LEAST_RUNS,
    correlation,
    learnt,
    place_among,
    score_of,
    terms,
    together,
    told_by,
)
from state.facts import NO_TREND, Peers, Trend
from tests.functions.sample import experiment


def trend_of(pairs: list[tuple[float, float]]) -> Trend:
    return reduce(together, (terms(u, v) for u, v in pairs), NO_TREND)


def drawn_pairs(r: float, runs: int, lowest: float = -math.inf) -> list[tuple[float, float]]:
    """Normal pairs of this correlation; those that begin below `lowest` are stopped, and have no end."""
    chance = random.Random(7)
    starts = [chance.gauss(0, 1) for _ in range(runs)]
    return [(u, chance.gauss(r * u, math.sqrt(1 - r * r))) for u in starts if u >= lowest]


def measured(trend: Trend) -> float:
    found = correlation(trend, doubt=0, hope=0)
    assert found is not None
    assert found.low == found.high
    return found.low


@pytest.mark.parametrize("r", [-0.3, 0.2, 0.95])
@pytest.mark.parametrize("lowest", [-math.inf, -0.5, 0.3])
def test_the_correlation_of_all_is_found_though_the_worst_were_stopped(r: float, lowest: float) -> None:
    assert measured(trend_of(drawn_pairs(r, 5_000, lowest))) == pytest.approx(r, abs=0.06)


def test_too_few_runs_and_runs_that_are_all_alike_tell_nothing() -> None:
    few = drawn_pairs(0.9, LEAST_RUNS - 1)
    assert correlation(trend_of(few), doubt=1, hope=1) is None
    assert correlation(trend_of([(0.0, v) for _, v in drawn_pairs(0.9, 50)]), doubt=1, hope=1) is None
    assert correlation(trend_of([(u, 0.0) for u, _ in drawn_pairs(0.9, 50)]), doubt=1, hope=1) is None


def test_the_fewer_runs_tell_the_less_is_sure() -> None:
    few, many = (correlation(trend_of(drawn_pairs(0.6, 20) * times), doubt=1.5, hope=2) for times in (1, 10))
    assert few is not None
    assert many is not None
    assert few.low < many.low < many.high < few.high


SCORES = st.floats(-5, 5)


@given(pairs=st.lists(st.tuples(SCORES, SCORES), min_size=LEAST_RUNS, max_size=40))
def test_bounds_of_a_correlation_are_in_order_within_one(pairs: list[tuple[float, float]]) -> None:
    found = correlation(trend_of(pairs), doubt=1.5, hope=2)
    assert found is None or -1 < found.low <= found.high < 1


@given(better=st.integers(0, 10**6), tied=st.integers(0, 10**6), worse=st.integers(0, 10**6))
def test_every_place_has_a_finite_score(better: int, tied: int, worse: int) -> None:
    place = place_among(better, tied, worse)
    assert 0 < place < 1
    assert math.isfinite(score_of(place))
    assert score_of(place) == pytest.approx(-score_of(place_among(worse, tied, better)), abs=1e-6)


def test_the_end_of_a_run_tells_of_the_buckets_at_which_it_was_ranked() -> None:
    e = experiment(places={"0.1": 1.0, "0.4": -1.0})
    found = learnt(e, 0.9, Peers(lower=1, equal=0, runs=4), "minimize")

    assert found is not None
    assert found.value == 0.9
    assert found.place == pytest.approx(score_of(0.7))  # three are worse, of four
    assert found.trends == told_by({"0.1": 1.0, "0.4": -1.0}, found.place)
    assert found.trends["0.4"] == terms(-1.0, found.place)
    assert learnt(experiment(), 0.9, Peers(1, 0, 4), "minimize") is None


def test_where_the_metric_is_maximised_the_highest_end_is_the_best() -> None:
    e = experiment(places={"0.1": 1.0})
    down, up = (learnt(e, 0.9, Peers(1, 0, 4), direction) for direction in ("minimize", "maximize"))
    assert down is not None
    assert up is not None
    assert up.place == pytest.approx(-down.place)
