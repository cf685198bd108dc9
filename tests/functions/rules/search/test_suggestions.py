"""Suggestions are concrete, and never repeat a combination."""

from __future__ import annotations

from itertools import combinations
from typing import Any, get_args

from hypothesis import given
from hypothesis import strategies as st

from functions.contract import CATEGORIES
from functions.rules.search.suggestions import high_yield, short, suggest, uncombined_pair, underexplored
from state.records import Experiment, Mode
from tests.functions.rules.sample import experiment

MODES: tuple[Mode, ...] = get_args(Mode)


@given(
    st.lists(st.sampled_from(["optimizer", "attention", "depth"]), max_size=6),
    st.lists(st.lists(st.integers(1, 6).map("mar11-{}".format), max_size=3, unique=True), max_size=6),
)
def test_the_pair_is_the_best_of_two_categories_that_nobody_has_combined(
    categories: list[str], families: list[list[str]]
) -> None:
    near = [experiment(n, category=c) for n, c in enumerate(categories, 1)]
    tried = [experiment(100 + n, parent_ids=parents) for n, parents in enumerate(families)]

    def free(a: Experiment, b: Experiment) -> bool:
        together = any({a.experiment_id, b.experiment_id} <= set(parents) for parents in families)
        return a.category != b.category and not together

    found = uncombined_pair(near, [e.parent_ids for e in tried])

    assert found == next((pair for pair in combinations(near, 2) if free(*pair)), None)


def test_fewer_than_three_tries_are_too_few() -> None:
    stats = {"optimizer": (3, 0), "attention": (2, 2)}

    found = underexplored(stats, CATEGORIES)

    assert "optimizer" not in found
    assert "attention" in found
    assert "other" not in found
    assert found == [c for c in CATEGORIES if c in found]


def test_what_pays_off_has_three_tries_and_more_than_three_in_ten_kept() -> None:
    stats = {"a": (10, 3), "b": (10, 4), "c": (2, 2), "d": (3, 3)}

    assert high_yield(stats) == ["d", "b"]


@given(
    st.sampled_from(MODES),
    st.booleans(),
    st.booleans(),
    st.lists(st.sampled_from(["keep", "crash", "discard"]), max_size=3),
    st.text(max_size=5000),
)
def test_there_is_always_something_to_try_and_it_stays_short(
    mode: Mode, has_best: bool, has_pair: bool, statuses: list[str], text: str
) -> None:
    told: dict[str, Any] = {"description": text or "d", "diff_summary": text or "s", "error": text or None}
    recent = [experiment(n, status=s, **told) for n, s in enumerate(statuses)]
    pair = (experiment(1, **told), experiment(2, **told)) if has_pair else None

    ideas = suggest(
        mode,
        unexplored=CATEGORIES,
        yielding=["a"],
        pair=pair,
        best=experiment(**told) if has_best else None,
        recent=recent,
    )

    assert 1 <= len(ideas) <= 4
    assert all(ideas)
    assert sum(map(len, ideas)) < 2000
    assert not any("\n" in idea for idea in ideas)


@given(st.text(), st.integers(2, 80))
def test_short_is_one_line_of_so_many_characters(text: str, most: int) -> None:
    line = short(text, most)

    assert len(line) <= most
    assert line.split() == line.split(" ") or line == ""
