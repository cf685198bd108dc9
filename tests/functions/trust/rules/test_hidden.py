"""The rules of a hidden split: its noise, and whether a gain there is shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t

from functions.fold import ClassNoise, measure
from functions.trust.rules.hidden import ALPHA, HiddenRuns, is_behind, is_unshown
from functions.trust.rules.noise import Mean
from state.facts import HiddenFacts, Noise, Spread
from state.records import Direction

NONE = HiddenRuns(Spread(), {})
RUNS = st.lists(st.tuples(st.sampled_from("abc"), st.floats(0.5, 1.5)), max_size=12)


@given(RUNS)
def test_its_noise_is_estimated_as_that_of_the_visible_metric(runs: list[tuple[str, float]]) -> None:
    known, visible = NONE, ClassNoise(Spread())
    for nth, (code, value) in enumerate(runs):
        known = known.with_run(code, f"{code}-{nth}", value)
        measure(visible, code, None, value)
        known = HiddenRuns.of(HiddenFacts(dict(known.fields("a", "b", "c"))))

    assert known.sums.df == visible.sums.df
    assert known.sums.squares == pytest.approx(visible.sums.squares, abs=1e-12)


def test_runs_that_are_told_twice_or_taken_back_leave_no_trace() -> None:
    known = NONE
    for nth, value in enumerate((1.0, 1.01, 0.99, 1.02)):
        known = known.with_run("a", f"a-{nth}", value).with_run("a", f"a-{nth}", value + 1)
    after = known.with_run("a", "new", 1.03).without("a", ["new"])

    assert after.codes["a"].runs == {"a-0": 1.0, "a-1": 1.01, "a-2": 0.99, "a-3": 1.02}
    assert after.mean("a") == known.mean("a")
    assert after.sums.df == 3
    assert after.sums.squares == pytest.approx(known.sums.squares)
    assert after.without("a", [f"a-{nth}" for nth in range(4)]).fields("a")["a"] == ""


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_a_first_look_refuses_what_is_behind_or_has_no_number(direction: Direction) -> None:
    better = 0.4 if direction == "minimize" else 0.6
    assert not is_behind(Mean(better), Mean(0.5), direction)
    assert not is_behind(Mean(0.5), Mean(0.5), direction)
    assert is_behind(Mean(1 - better), Mean(0.5), direction)
    assert is_behind(None, Mean(0.5), direction)


def test_the_last_look_asks_for_a_gain_that_noise_does_not_explain() -> None:
    noise, error = Noise(0.01, 5), 0.01 * (1 / 2 + 1 / 3) ** 0.5
    least = float(t.isf(ALPHA, 5)) * error
    for gain, is_refused in ((least * 1.001, False), (least * 0.999, True), (0.0, True), (-1.0, True)):
        assert is_unshown(Mean(0.5 - gain, 2), Mean(0.5, 3), noise, "minimize") is is_refused
    assert is_unshown(None, Mean(0.5), noise, "minimize")


@pytest.mark.parametrize("noise", [None, Noise(0.0, 3)])
def test_without_a_known_noise_it_asks_for_no_loss(noise: Noise | None) -> None:
    assert not is_unshown(Mean(0.5, 2), Mean(0.5, 3), noise, "minimize")
    assert is_unshown(Mean(0.6, 2), Mean(0.5, 3), noise, "minimize")
