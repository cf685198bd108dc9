"""Verdicts: keep what is strictly better; one direction mirrors the other; keys decide who competes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.experiments.rules.verdict import (
    Key,
    check_plausible,
    compare,
    contradiction,
    judge,
    near_band,
)
from state.errors import Invalid
from state.records import Direction, score

VALUES = st.floats(-1e6, 1e6)
MARGINS = st.floats(0, 1)
PARTS = st.sampled_from([None, "a", "b"])
DIRECTIONS: st.SearchStrategy[Direction] = st.sampled_from(["minimize", "maximize"])
KEYS = st.builds(Key, PARTS, PARTS, st.sampled_from([None, 300.0, 60.0]))


@pytest.mark.parametrize("best", [0.993, 1.003, 0.1, 3.3])
def test_a_margin_is_inclusive_whatever_binary_makes_of_it(best: float) -> None:
    printed = round(best + 0.002, 3)  # 3.302 is more than 3.3 + 0.002
    assert judge(printed, best, "minimize", 0.002).near_miss
    assert not judge(best + 0.002001, best, "minimize", 0.002).near_miss


@given(VALUES, VALUES, MARGINS)
def test_what_is_better_is_kept_and_never_a_near_miss(value: float, best: float, margin: float) -> None:
    verdict = judge(value, best, "minimize", margin)
    assert verdict.improved == (value < best)
    assert verdict.status == ("keep" if value < best else "discard")
    assert not (verdict.improved and verdict.near_miss)
    assert (verdict.delta >= 0) == (value <= best)


@given(VALUES, st.none() | VALUES, MARGINS)
def test_maximising_is_a_mirror(value: float, best: float | None, margin: float) -> None:
    mirrored = judge(-value, None if best is None else -best, "maximize", margin)
    assert judge(value, best, "minimize", margin) == mirrored


@given(VALUES, VALUES, DIRECTIONS)
def test_a_demoted_run_is_near_if_it_is_no_further_off_than_the_margin(
    value: float, best: float, way: Direction
) -> None:
    low, high = near_band(best, way, 0.002)
    distance = abs(value - best)
    if abs(distance - 0.002) > 1e-8:
        assert (low <= score(value, way) <= high) == (distance < 0.002)


def test_what_no_run_can_measure_is_refused_and_another_metric_may_be_negative() -> None:
    for value in (math.nan, math.inf, -math.inf, 0.0, -0.0, -1.0, 1e101):
        with pytest.raises(Invalid) as refusal:
            check_plausible("val_bpb", value)

        assert refusal.value.hint is not None, value
    check_plausible("reward", -3.0)
    check_plausible("val_bpb", 5e-324)


@given(KEYS, KEYS)
def test_missing_parts_are_inherited_and_only_known_ones_can_disagree(main: Key, run: Key) -> None:
    whole, agrees = compare(main, run)

    for name in ("gpu_class", "evaluator_hash", "budget_seconds"):
        ours, theirs = getattr(main, name), getattr(run, name)
        assert getattr(whole, name) == (theirs if theirs is not None else ours)
    assert compare(main, Key()) == (main, True)
    assert compare(whole, run) == (whole, True)
    assert agrees == all(ours in (None, found) for ours, found in zip(main, whole, strict=True))
    assert agrees == (contradiction(main, run) == Key())


@given(KEYS, KEYS)
def test_other_keys_have_other_names(one: Key, two: Key) -> None:
    assert (one.text == two.text) == (one == two)


@given(KEYS, KEYS, KEYS)
def test_a_run_competes_under_the_same_key_while_the_main_key_learns(main: Key, run: Key, other: Key) -> None:
    learned, agrees = compare(main, other)
    contradicts = {part for part in run._fields if getattr(contradiction(learned, run), part) is not None}
    if agrees and not any(getattr(main, part) is None for part in contradicts):
        assert contradiction(learned, run) == contradiction(main, run)
