"""Suggestions are concrete, and never repeat a combination."""

from __future__ import annotations

from itertools import combinations
from typing import Any, get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from functions.kernel.contract import CATEGORIES
from functions.search.rules.suggestions import (
    Ground,
    Least,
    barren,
    high_yield,
    least_tried_of,
    short,
    suggest,
    uncombined_pair,
    underexplored,
)
from state.records import Experiment, Mode
from tests.functions.sample import experiment

MODES: tuple[Mode, ...] = get_args(Mode)


@given(
    st.lists(st.sampled_from(["optimizer", "attention", "depth"]), max_size=6),
    st.lists(st.lists(st.integers(1, 6).map("mar11-{}".format), max_size=3, unique=True), max_size=6),
)
def test_the_pair_is_the_best_that_nobody_has_combined_of_two_categories_if_there_is_one(
    categories: list[str], families: list[list[str]]
) -> None:
    near = [experiment(n, category=c) for n, c in enumerate(categories, 1)]
    tried = [experiment(100 + n, parent_ids=parents) for n, parents in enumerate(families)]

    def free(a: Experiment, b: Experiment) -> bool:
        together = any({a.experiment_id, b.experiment_id} <= set(parents) for parents in families)
        return not together

    found = uncombined_pair(near, [e.parent_ids for e in tried])

    pairs = [pair for pair in combinations(near, 2) if free(*pair)]
    mixed = [(a, b) for a, b in pairs if a.category != b.category]
    assert found == next(iter(mixed or pairs), None)


def test_untried_categories_are_named_first_and_then_those_that_paid_off_best() -> None:
    stats = {"architecture": (2, 0), "hyperparams": (2, 1), "optimizer": (1, 1)}
    stats |= {"depth": (3, 0), "embedding": (0, 0)}
    names = ["architecture", "hyperparams", "depth", "optimizer", "activation", "embedding", "other"]
    unexplored = underexplored(stats, names)
    assert unexplored == ["activation", "embedding", "optimizer", "hyperparams", "architecture"]
    assert "Not tried enough yet: activation, embedding, optimizer, hyperparams." in ideas(
        "exploit", unexplored=unexplored
    )


def test_what_pays_off_has_three_tries_and_more_than_three_in_ten_kept() -> None:
    stats = {"a": (10, 3), "b": (10, 4), "c": (2, 2), "d": (3, 3)}
    assert high_yield(stats) == ["d", "b"]


def test_ten_tries_without_a_keep_are_barren() -> None:
    stats = {"hyperparams": (15, 0), "optimizer": (10, 0), "attention": (9, 0), "activation": (20, 1)}
    assert barren(stats) == {"hyperparams": 15, "optimizer": 10}
    assert "Barren so far: 15 hyperparams, 0 keeps, 10 optimizer, 0 keeps." in ideas(
        "exploit", barren=barren(stats)
    )


def test_the_least_tried_category_is_one_where_few_tries_came_to_nothing() -> None:
    enough: dict[str, tuple[int, int]] = dict.fromkeys(CATEGORIES, (7, 0))
    assert least_tried_of({}, CATEGORIES) == "architecture"
    assert least_tried_of({"architecture": (1, 0), "optimizer": (2, 0)}, CATEGORIES) == "hyperparams"
    assert least_tried_of({"architecture": (9, 9), "optimizer": (2, 2)}, CATEGORIES) == "optimizer"
    assert least_tried_of({**enough, "embedding": (4, 4), "other": (0, 0)}, CATEGORIES) == "embedding"


def test_exploring_names_a_category_and_what_was_tried_there() -> None:
    tries = [
        experiment(n, status=s, description=f"d{n}") for n, s in enumerate(("keep", "discard", "crash"), 1)
    ]
    [untried] = ideas("explore", least=Least("attention", is_new=True))
    [tried] = ideas("explore", least=Least("attention", tries), best=tries[0])
    assert "attention (not tried yet)" in untried
    assert "attention (tried there: mar11-2 discard: d2; mar11-3 crash: d3) on top of mar11-1" in tried


def test_every_pair_was_tried_is_said_only_where_it_is_true() -> None:
    near = [experiment(n, category="optimizer") for n in (1, 2, 3)]
    [none], [one], [many] = (ideas("combine", near=near[:n]) for n in (0, 1, 3))
    assert "No near miss is there" in none
    assert "One near miss alone" in one
    assert "mar11-1" in one
    assert "All pairs of 3 near misses were tried" in many


@given(st.integers(1, 40))
def test_a_crash_hint_quotes_the_last_exception(frames: int) -> None:
    trace = "\n".join(f'  File "/opt/a/long/path/{n}/train.py", line {n}, in f' for n in range(frames))
    error = f"exited with 1\nTraceback (most recent call last):\n{trace}\nValueError: width 7 is odd"
    crash = experiment(3, status="crash", error=error, error_kind="other")
    late = experiment(
        4, status="timeout", error=f"still running at its time limit\n{trace}", error_kind="timeout"
    )
    assert ideas("explore", recent=[crash])[1] == "Avoid what crashed mar11-3: ValueError: width 7 is odd"
    assert ideas("explore", recent=[late])[1] == "Avoid what crashed mar11-4: still running at its time limit"


def test_before_the_first_result_the_baseline_comes_first_in_every_mode_of_training() -> None:
    least = Least("attention", is_new=True)
    alone, queued = (
        ideas("explore", best=None, least=least, waits_for=baseline)
        for baseline in (None, "the baseline mar11-1")
    )

    assert alone == [
        "Run the unchanged train.py first: its result is the baseline that everything is compared with."
    ]
    assert queued == [
        "The lab runs the baseline mar11-1 first, the unchanged train.py that everything is compared with. Meanwhile"
        " prepare one change in attention (not tried yet) to the tag's base commit, and submit it: it waits behind"
        " the baseline."
    ]


def ideas(mode: Mode, **told: Any) -> list[str]:
    """Suggestions of a tag that has a best and has tried every category."""
    base = told.pop("best", experiment())
    known: dict[str, Any] = {"commit_sha": None, "near": [], "near_count": 0, "recent": []}
    known |= {name: told.pop(name) for name in ("near", "recent", "merging", "beside") if name in told}
    return suggest(mode, Ground(base, **known), **{"unexplored": [], "yielding": [], "pair": None} | told)


@settings(max_examples=25)  # long texts take long to draw
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

    ground = Ground(experiment(**told) if has_best else None, None, [], 0, recent)
    ideas = suggest(mode, ground, unexplored=CATEGORIES, yielding=["a"], pair=pair)

    assert 1 <= len(ideas) <= 4
    assert all(ideas)
    assert sum(map(len, ideas)) < 2000
    assert not any("\n" in idea for idea in ideas)


@given(st.text(), st.integers(2, 80))
def test_short_is_one_line_of_so_many_characters(text: str, most: int) -> None:
    line = short(text, most)
    assert len(line) <= most
    assert line.split() == line.split(" ") or line == ""
