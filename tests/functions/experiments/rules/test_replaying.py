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
    replaying,
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
    return Replay([*replaying(recorded(record), KEEP_RULES[rule], noise, "minimize")])


LUCKY = [(0.9700, True, 1), (0.9706, False, 1), (0.9690, True, 2), (0.9720, False, 2)]
STEADY = [*LUCKY[:2], (0.9690, True, 2), (0.9692, False, 2)]
WITHIN = [(1.0, True), (0.99, True), (0.9895, True), (0.9894, False)]
FAR = [(0.9700, True), (0.9700 - 5 * 0.0006, True)]
FEW, ENOUGH = Noise(0.0006, 2), Noise(0.0006, MANY)
REPLAYS: dict[str, tuple[Record, str, Noise, list[str], list[int], float]] = {
    "as strict would have": (
        [(1.0, True), (0.99, True), (0.995, False), (0.98, True)],
        *("strict", USUAL, ["keep", "keep", "discard", "keep"], [], 0.02),
    ),
    "the record is believed": (
        [(1.0, True), (0.99, False), (1.001, True), (1.0005, False)],
        *("strict", USUAL, ["keep", "keep", "discard", "keep"], [1, 2, 3], -0.001),
    ),
    "a repeat that was kept": (
        [(1.0, True, 1), (0.99, True, 1)],
        "strict",
        USUAL,
        ["keep", "keep"],
        [],
        0.01,
    ),
    "within noise": (WITHIN, "confirmed", USUAL, ["keep", "keep", "retest", "retest"], [2, 3], 0.0105),
    "few repeats": (FAR, "confirmed", FEW, ["keep", "retest"], [1], 0.003),
    "many repeats": (FAR, "confirmed", ENOUGH, ["keep", "keep"], [], 0.003),
    "a lucky run": (LUCKY, "confirmed", ENOUGH, ["keep", "demoted"], [1], 0.001),
    "a steady one": (STEADY, "confirmed", ENOUGH, ["keep", "confirmed"], [], 0.001),
}
"""Verdicts of a rule beside a record, the places where it differs from the record, and the record's gain."""


@pytest.mark.parametrize(
    ("record", "rule", "noise", "verdicts", "differs", "claimed"), REPLAYS.values(), ids=REPLAYS
)
def test_a_record_is_judged_again(
    record: Record, rule: str, noise: Noise, verdicts: list[str], differs: list[int], claimed: float
) -> None:
    found = replayed(record, rule, noise)
    assert [j.verdict for j in found.judged] == verdicts
    assert [n for n, j in enumerate(found.judged) if j.differs] == differs
    assert found.claimed == pytest.approx(claimed)


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
    found = Replay([*replaying(runs, KEEP_RULES["strict"], USUAL, "minimize")])
    assert (found.judged[1].p_better, found.judged[1].within_noise) == (0.7, True)
    assert found.false_share == pytest.approx(0.3)


@pytest.mark.parametrize(("direction", "kept"), [("minimize", "10010"), ("maximize", "11000")])
def test_without_verdicts_new_code_that_beat_all_before_it_was_kept(direction: Direction, kept: str) -> None:
    record = [(1.0, False, 1), (1.2, False, 2), (0.9, False, 1), (0.95, False, 3), (0.95, False, 4)]
    found = by_running_best(recorded(record), direction)
    assert [run.kept for run in found] == [flag == "1" for flag in kept]


@given(RECORDS, st.sampled_from(list(KEEP_RULES)), st.floats(0, 0.01))
def test_figures_are_numbers_and_maximising_mirrors_minimising(
    record: Record, name: str, sigma: float
) -> None:
    noise = Noise(sigma, MANY)
    mirrored = [RecordedRun(r.name, r.text, -r.value, r.kept, r.code) for r in recorded(record)]

    found = replayed(record, name, noise)
    other = Replay([*replaying(mirrored, KEEP_RULES[name], noise, "maximize")])

    figures = [found.claimed, *(j.p_better for j in found.judged if j.p_better is not None)]
    assert all(math.isfinite(figure) for figure in figures)
    assert found.false_share is None or 0 <= found.false_share <= 1
    assert [(j.margin, j.p_better, j.verdict) for j in other.judged] == [
        (j.margin, j.p_better, j.verdict) for j in found.judged
    ]
