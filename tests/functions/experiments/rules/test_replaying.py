"""Replays: each run is asked about again, beside the best that the record held."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.experiments.rules.keeping import KEEP_RULES
from functions.experiments.rules.replaying import (
    MANY,
    USUAL,
    RecordedRun,
    Replay,
    by_running_best,
    noise_of,
    replay,
)
from state.facts import Noise
from state.records import Direction

VALUES = st.floats(0.9, 1.1)
Record = Sequence[tuple[float, bool] | tuple[float, bool, int | None]]
RECORDS = st.lists(st.tuples(VALUES, st.booleans(), st.none() | st.integers(0, 3)), max_size=12)


@pytest.fixture(scope="module", autouse=True)
def scipy_is_there() -> None:
    """The first probability takes a second, which is no example's fault."""
    replayed([(1.0, True), (2.0, True)], "strict")


def recorded(record: Record) -> list[RecordedRun]:
    """Runs named by their place, from (value, kept) or (value, kept, code)."""
    return [RecordedRun(str(n), "", run[0], run[1], *run[2:]) for n, run in enumerate(record)]


def replayed(record: Record, rule: str, noise: Noise = USUAL) -> Replay:
    return replay(recorded(record), KEEP_RULES[rule], noise, "minimize")


def test_a_record_that_kept_what_was_lower_is_what_strict_would_have_done() -> None:
    found = replayed([(1.0, True), (0.99, True), (0.995, False), (0.98, True)], "strict")
    assert [j.verdict for j in found.judged] == ["keep", "keep", "discard", "keep"]
    assert not any(j.differs for j in found.judged)
    assert found.claimed == pytest.approx(0.02)


def test_the_record_is_believed_where_strict_would_have_done_something_else() -> None:
    found = replayed([(1.0, True), (0.99, False), (1.001, True), (1.0005, False)], "strict")
    assert [j.verdict for j in found.judged] == ["keep", "keep", "discard", "keep"]
    assert [j.best for j in found.judged] == [None, 1.0, 1.0, 1.001]
    assert [j.differs for j in found.judged] == [False, True, True, True]
    assert found.claimed == pytest.approx(-0.001)


def test_confirmation_asks_to_run_again_what_lies_within_noise() -> None:
    found = replayed([(1.0, True), (0.99, True), (0.9895, True), (0.9894, False)], "confirmed")
    assert [j.verdict for j in found.judged] == ["keep", "keep", "retest", "retest"]
    assert [j.within_noise for j in found.judged] == [False, False, True, False]
    assert len(found.of("retest")) == 1


def test_repeats_that_were_made_confirm_or_demote() -> None:
    noise = Noise(0.0006, MANY)
    lucky = [(0.9700, True, 1), (0.9706, False, 1), (0.9690, True, 2), (0.9720, False, 2)]
    steady = [*lucky[:2], (0.9690, True, 2), (0.9692, False, 2)]

    assert [j.verdict for j in replayed(lucky, "confirmed", noise).judged] == ["keep", "demoted"]
    assert [j.verdict for j in replayed(steady, "confirmed", noise).judged] == ["keep", "confirmed"]
    assert [j.differs for j in replayed(lucky, "confirmed", noise).judged] == [False, True]
    assert [j.differs for j in replayed(steady, "confirmed", noise).judged] == [False, False]


def test_a_margin_that_few_repeats_do_not_explain_runs_again_all_the_same() -> None:
    record = [(0.9700, True), (0.9700 - 5 * 0.0006, True)]
    assert [j.verdict for j in replayed(record, "confirmed", Noise(0.0006, 2)).judged] == ["keep", "retest"]
    assert [j.verdict for j in replayed(record, "confirmed", Noise(0.0006, 99)).judged] == ["keep", "keep"]


def test_noise_is_measured_by_repeats_of_the_same_code_alone() -> None:
    runs = recorded(
        [(0.97, True, 1), (0.5, True, None), (0.98, False, 1), (0.6, False, None), (0.7, True, 2)]
    )

    noise = noise_of(runs)

    assert noise is not None
    assert noise.df == 1
    assert noise.sigma == pytest.approx(0.01 / math.sqrt(2))
    assert noise_of(runs[:2]) is None


def test_a_recorded_probability_is_believed() -> None:
    runs = [RecordedRun("a", "", 1.0, True), RecordedRun("b", "", 0.9, True, p_better=0.7)]
    found = replay(runs, KEEP_RULES["strict"], USUAL, "minimize")
    assert (found.judged[1].p_better, found.judged[1].within_noise) == (0.7, True)
    assert found.false_share == pytest.approx(0.3)


@pytest.mark.parametrize(("direction", "kept"), [("minimize", "10010"), ("maximize", "11000")])
def test_without_verdicts_new_code_that_beat_all_before_it_was_kept(direction: Direction, kept: str) -> None:
    record = [(1.0, False, 1), (1.2, False, 2), (0.9, False, 1), (0.95, False, 3), (0.95, False, 4)]
    found = by_running_best(recorded(record), direction)
    assert [run.kept for run in found] == [flag == "1" for flag in kept]


def test_nothing_recorded_is_nothing_to_doubt() -> None:
    found = replayed([], "confirmed")
    assert (found.judged, found.claimed, found.false_share) == ([], 0.0, None)


@given(RECORDS, st.sampled_from(list(KEEP_RULES)), st.floats(0, 0.01))
def test_figures_are_numbers_and_maximising_mirrors_minimising(
    record: Record, name: str, sigma: float
) -> None:
    noise = Noise(sigma, MANY)
    mirrored = [RecordedRun(r.name, r.text, -r.value, r.kept, r.code) for r in recorded(record)]

    found = replayed(record, name, noise)
    other = replay(mirrored, KEEP_RULES[name], noise, "maximize")

    figures = [found.claimed, *(j.p_better for j in found.judged if j.p_better is not None)]
    assert all(math.isfinite(figure) for figure in figures)
    assert found.false_share is None or 0 <= found.false_share <= 1
    assert [(j.margin, j.p_better, j.verdict) for j in other.judged] == [
        (j.margin, j.p_better, j.verdict) for j in found.judged
    ]
