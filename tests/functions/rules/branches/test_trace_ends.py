"""Ends of traces: crashes in a row, no progress, a merge; and where the next one starts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.rules.branches.trace_ends import Vitals, after_commit, death, ended_by_merge, next_start
from functions.rules.keeps.verdict import Key
from state.records import Direction
from tests.functions.rules.sample import experiment


def stood(scores: list[float | None]) -> Vitals:
    vitals = Vitals()
    for each in scores:
        vitals = after_commit(vitals, each)
    return vitals


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([None, None], None),
        ([None, None, None], "crashes"),
        ([0.9, None, None, 0.95, None], None),
        ([0.9, None, None, None], "crashes"),
        ([0.9, 0.91, 0.92, 0.93], None),
        ([0.9, 0.91, 0.9, None, 0.93, 0.9], "stale"),
        ([0.9, 0.91, 0.92, 0.93, 0.94, 0.89], None),
        ([], None),
    ],
)
def test_a_trace_dies_of_crashes_in_a_row_or_of_commits_without_a_new_best(
    scores: list[float | None], expected: str | None
) -> None:
    assert death(stood(scores), dead_after_crashes=3, stale_after=5) == expected


@given(st.lists(st.none() | st.floats(-2, 2), max_size=20))
def test_counted_one_by_one_or_all_at_once_a_trace_stands_the_same(scores: list[float | None]) -> None:
    vitals = stood(scores)

    known = [s for s in scores if s is not None]
    best = min(known, default=None)
    assert vitals.best == best
    assert vitals.commits_since_best == (
        len(scores) if best is None else len(scores) - 1 - scores.index(best)
    )
    assert vitals.crashes_in_a_row == len(scores) - max(
        (n + 1 for n, s in enumerate(scores) if s is not None), default=0
    )


def test_sources_end_with_a_kept_merge_unless_they_have_grown() -> None:
    selected, tips = {"t1": "mar11-4", "t2": "mar11-5"}, {"t1": "mar11-4", "t2": "mar11-9", "t3": "mar11-5"}

    assert ended_by_merge(selected, tips, goes_on=True) == ["t1"]
    assert ended_by_merge(selected, tips, goes_on=False) == []
    assert ended_by_merge(selected, {}, goes_on=True) == []


@pytest.mark.parametrize(("direction", "expected"), [("minimize", 2), ("maximize", 3)])
def test_the_next_trace_starts_from_the_best_keep_that_nobody_builds_on(
    direction: Direction, expected: int
) -> None:
    kept = [experiment(n, status="keep", val_bpb=v) for n, v in [(1, 0.8), (2, 0.97), (3, 0.98), (4, 1.2)]]

    start = next_start(kept, {"mar11-1", "mar11-4"}, direction, Key())

    assert start == kept[expected - 1]


def test_where_everything_kept_is_built_on_the_next_trace_is_a_new_root() -> None:
    assert next_start([experiment(1, status="keep", val_bpb=0.8)], {"mar11-1"}, "minimize", Key()) is None
