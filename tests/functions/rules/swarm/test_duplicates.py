"""A config is run as often as its result matters, and never more often than the policy allows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.rules.swarm.duplicates import REPEATING, RunCounts, desired_repeats, may_run
from functions.rules.swarm.shapes import SwarmStrategy
from state.policy import Duplicates, Policy
from tests.functions.rules.swarm.sample import STRATEGIES

USUAL = Duplicates()


@pytest.mark.parametrize(
    ("priority", "repeats"),
    [(1, 4), (0.85, 4), (0.849, 3), (0.70, 3), (0.699, 2), (0.55, 2), (0.549, 1), (0, 1)],
)
def test_repeats_follow_the_published_table(priority: float, repeats: int) -> None:
    assert desired_repeats(priority) == repeats


def test_the_published_limits_are_the_defaults() -> None:
    assert (Policy().duplicates.max_trials, Policy().duplicates.max_inflight) == (6, 2)


@given(
    st.builds(RunCounts, st.integers(0, 9), st.integers(0, 9)),
    st.floats(0, 1),
    st.sampled_from(STRATEGIES),
    st.builds(Duplicates, max_trials=st.integers(1, 9), max_inflight=st.integers(1, 9)),
)
def test_no_strategy_runs_a_config_more_often_than_max_trials(
    tried: RunCounts, priority: float, strategy: SwarmStrategy, duplicates: Duplicates
) -> None:
    if may_run(tried, priority, strategy, duplicates):
        assert tried.trials + tried.in_flight < duplicates.max_trials
        if strategy not in REPEATING:
            assert tried.in_flight < duplicates.max_inflight
            assert tried.trials + tried.in_flight < desired_repeats(priority)


def test_a_config_that_explores_is_run_once() -> None:
    assert may_run(RunCounts(), 0.3, "investigate", USUAL)
    assert not may_run(RunCounts(trials=1), 0.3, "investigate", USUAL)
    assert not may_run(RunCounts(in_flight=1), 0.3, "investigate", USUAL)


def test_two_repeats_of_a_config_run_at_once_and_the_third_waits() -> None:
    assert may_run(RunCounts(in_flight=1), 0.9, "exploit", USUAL)
    assert not may_run(RunCounts(in_flight=2), 0.9, "exploit", USUAL)
    assert may_run(RunCounts(trials=2, in_flight=1), 0.9, "exploit", USUAL)


@pytest.mark.parametrize("strategy", sorted(REPEATING))
def test_where_repeats_are_the_purpose_all_trials_may_run_at_once(strategy: SwarmStrategy) -> None:
    assert may_run(RunCounts(in_flight=5), 0.0, strategy, USUAL)
    assert not may_run(RunCounts(trials=1, in_flight=5), 1.0, strategy, USUAL)


def test_what_is_compared_with_its_reference_is_run_any_number_of_times() -> None:
    often = RunCounts(trials=60, in_flight=9)

    assert may_run(often, 0.3, "investigate", Duplicates(), is_of_claim=True)
    assert not may_run(often, 0.3, "investigate", Duplicates())
