"""How often a config may run, and its fingerprint: equal for configs that set a train.py to the same values."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from functions.swarm.rules.dimensions import same
from functions.swarm.rules.proposals import (
    REPEATING,
    RunCounts,
    canonical,
    desired_repeats,
    fingerprint,
    may_run,
    normalised,
)
from functions.swarm.rules.shapes import SwarmStrategy
from state.policy import Duplicates
from state.records import Dimension, Value
from tests.functions.swarm.rules.sample import (
    DEPTH,
    DROPOUT,
    LR,
    SOME,
    STRATEGIES,
    VALUES,
    dimension,
    dimensions,
)

USUAL = Duplicates()


@pytest.mark.parametrize(
    ("priority", "repeats"),
    [(1, 4), (0.85, 4), (0.849, 3), (0.70, 3), (0.699, 2), (0.55, 2), (0.549, 1), (0, 1)],
)
def test_repeats_follow_the_published_table(priority: float, repeats: int) -> None:
    assert desired_repeats(priority) == repeats


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


CONFIGS = st.dictionaries(st.text(max_size=4), VALUES, max_size=5)


def fp(**config: Value) -> str:
    return fingerprint(config, SOME)


def test_a_fingerprint_is_the_digest_of_a_text_that_never_changes() -> None:
    text = canonical({"LR": 0.001, "DEPTH": 8, "NAME": "é"})
    assert text == r'{"DEPTH":8,"LR":0.001,"NAME":"\u00e9"}'
    assert fp(LR=0.001, DEPTH=8) == hashlib.sha256(b'{"DEPTH":8,"LR":0.001}').hexdigest()


@given(CONFIGS, CONFIGS)
def test_configs_that_differ_have_other_texts(one: dict[str, Value], other: dict[str, Value]) -> None:
    assume(one.keys() != other.keys() or any(not same(one[name], other[name]) for name in one))
    assert canonical(one) != canonical(other)


@pytest.mark.parametrize("text", ["1e-3", "0.001", "1.0E-3", "0.00100"])
def test_a_float_has_one_fingerprint_however_it_was_spelt(text: str) -> None:
    assert fingerprint(json.loads(f'{{"LR": {text}}}'), [LR]) == fp(LR=0.001)


def test_a_number_has_the_type_of_its_dimension() -> None:
    assert fp(DROPOUT=0) == fp(DROPOUT=0.0) == fp(DROPOUT=-0.0)
    assert fp(DEPTH=8.0) == fp(DEPTH=8)
    assert fp(DEPTH=8) != fp(DEPTH=9)
    assert normalised({"DEPTH": 8.0, "DROPOUT": 0}, [DEPTH, DROPOUT]) == {"DEPTH": 8, "DROPOUT": 0.0}


def test_true_is_not_one_nor_a_text_a_number() -> None:
    flag = [dimension("FLAG", "categorical", categories=[1, True, "1", 0, False])]
    assert len({fingerprint({"FLAG": value}, flag) for value in (1, True, "1", 0, False)}) == 5
    assert fingerprint({"FLAG": 1.0}, flag) == fingerprint({"FLAG": 1}, flag)
    assert fp(DROPOUT=True) != fp(DROPOUT=1)


@given(dimensions(), VALUES)
def test_a_normalised_config_stays_as_it_is(found: Dimension, value: Value) -> None:
    once = normalised({"A": value}, [found])
    assert canonical(normalised(once, [found])) == canonical(once)
    assert same(once["A"], value)
