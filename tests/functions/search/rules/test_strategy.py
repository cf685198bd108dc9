"""The search's direction, from the last finished experiments."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from functions.search.rules.strategy import counts_as_crash, next_direction
from state.records import End, Status

ENDS: tuple[Status, ...] = ("keep", "discard", "crash", "timeout")
STATUSES = st.lists(st.sampled_from(ENDS), max_size=40)


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
