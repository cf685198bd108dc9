"""The search's direction, by its last finished experiments or by how often modes were kept."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.kernel.contract import CATEGORIES
from functions.search.rules.strategy import (
    NONE,
    Yield,
    best_category,
    best_mode,
    counts_as_crash,
    kept_category,
    mode_yields,
    next_by_yields,
    next_direction,
    next_strategy,
    with_kinds,
    yields,
)
from state.policy import Adapt
from state.records import End, Mode, Status

YIELDS = Adapt(rule="yields")
ENDS = st.lists(
    st.builds(
        End,
        st.sampled_from(["keep", "discard", "crash", "timeout", "stopped"]),
        st.sampled_from([None, "oom", "infra"]),
        st.booleans(),
        st.sampled_from(CATEGORIES),
        st.booleans(),
    ),
    max_size=60,
)


def tried(category: str, status: Status = "discard") -> End:
    return End(status, category=category)


BASELINE = End("keep", baseline=True)


def test_a_try_in_the_category_of_the_newest_keep_exploits_and_one_elsewhere_explores() -> None:
    ends = [
        BASELINE,
        tried("other"),
        tried("optimizer", "keep"),
        tried("optimizer"),
        tried("attention", "keep"),
        tried("optimizer"),
        tried("combination", "keep"),
        tried("attention"),
        tried("simplification"),
        tried("ablation", "keep"),
        End("discard", category="attention", merges=True),
        End("crash", "infra", category="attention"),
    ]

    assert [kind for _, kind in with_kinds(ends)] == [
        *("explore", "explore", "exploit", "explore", "explore"),
        *("combine", "exploit", "ablation", "ablation", "combine"),
    ]
    assert kept_category(ends) == "attention"


def test_evidence_fades() -> None:
    old = [("a", True)] + [("b", False)] * 40
    found = yields(old)
    assert found["a"].keeps == found["a"].tries == pytest.approx(0.135, abs=0.001)
    assert found["b"].tries == pytest.approx(17.7, abs=0.1)
    assert NONE.expected == 0.25 < found["a"].expected < yields([("a", True)])["a"].expected
    assert found["b"].bound < NONE.bound > Yield(1, 4).bound > Yield(4, 16).bound > 0.25


def test_what_pays_is_gone_on_with_and_left_once_it_pays_no_more() -> None:
    pays = [BASELINE, *([tried("optimizer", "keep"), tried("attention")] * 3), tried("optimizer", "keep")]
    pays += [tried("optimizer", "keep")] * 4
    assert best_mode(pays, 0)[0] == "exploit"
    assert best_mode([*pays, *[tried("optimizer")] * 12], 0)[0] != "exploit"


@given(ENDS, st.integers(0, 3), st.integers(0, 60))
def test_some_mode_that_is_possible_is_always_chosen(ends: list[End], near: int, finished: int) -> None:
    found = next_by_yields(ends, finished, near)
    assert found.mode in get_args(Mode)
    assert found.mode != "combine" or near >= 2
    assert found.mode != "exploit" or kept_category(ends) is not None
    if finished < 5 or not ends:
        assert (found.mode, found.temperature) == ("explore", 1.0)
    assert found == next_by_yields(ends, finished, near)
    assert all(0 <= y.keeps <= y.tries for y in mode_yields(ends).values())


@given(ENDS)
def test_what_is_explored_is_neither_a_mode_nor_what_was_kept_last(ends: list[End]) -> None:
    assert best_category(ends, CATEGORIES) not in {
        kept_category(ends),
        *("other", "combination", "ablation", "simplification"),
    }


def test_the_category_that_was_kept_often_is_explored_first() -> None:
    ends = [tried("embedding", "keep"), tried("optimizer"), tried("embedding"), tried("attention", "keep")]
    assert best_category(ends, CATEGORIES) == "embedding"
    assert best_category([], CATEGORIES) == "architecture"


def test_the_policy_says_which_rule_decides() -> None:
    kept = [BASELINE, *[tried("optimizer", "keep")] * 5]
    kept += [tried("attention")] * 20
    assert next_strategy(kept, 26, 0, Adapt()).mode == "ablation"
    found = next_strategy(kept, 26, 0, YIELDS)
    assert found.mode == "exploit"
    assert found.reason.startswith("exploit promises most")
    assert (Adapt().ends_read, YIELDS.ends_read) == (10, 60)


WAYS: tuple[Status, ...] = ("keep", "discard", "crash", "timeout")
STATUSES = st.lists(st.sampled_from(WAYS), max_size=40)


@given(STATUSES, st.integers(0, 5))
def test_the_table_is_followed(statuses: list[Status], near: int) -> None:
    recent = [End(s) for s in statuses]
    window = statuses[-10:]
    crashes = sum(s in ("crash", "timeout") for s in window)
    keeps = window.count("keep")

    found = next_direction(recent, len(statuses), near)

    if len(statuses) < 5:
        expected = ("explore", 1.0)
    elif crashes * 2 > len(window):
        expected = ("exploit", 0.3)
    elif keeps == 0 and len(statuses) > 20:
        expected = ("combine", 0.5) if near >= 2 else ("ablation", 0.3)
    elif keeps * 10 > 3 * len(window):
        expected = ("exploit", 0.5)
    else:
        expected = ("explore", 0.8)
    assert (found.mode, found.temperature) == expected
    assert found.explore_ratio == (0.8 if found.mode == "explore" else 0.3)
    assert found.reason


def test_faults_of_the_infrastructure_are_no_crashes() -> None:
    assert counts_as_crash(End("crash", "oom"))
    assert counts_as_crash(End("timeout"))
    assert not counts_as_crash(End("crash", "infra"))
    assert not counts_as_crash(End("stopped"))


def test_a_tag_whose_results_were_all_taken_back_explores() -> None:
    assert next_direction([], 9, 0).mode == "explore"
