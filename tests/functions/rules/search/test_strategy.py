"""The search's direction, from the last finished experiments."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from functions.rules.search.strategy import counts_as_crash, next_direction
from state.policy import Adapt
from tests.functions.rules.sample import experiment

STATUSES = st.lists(st.sampled_from(["keep", "discard", "crash", "timeout"]), max_size=40)


@given(STATUSES, st.integers(0, 5))
def test_the_table_is_followed(statuses: list[str], near: int) -> None:
    recent = [experiment(n, status=s) for n, s in enumerate(statuses, 1)]
    window = statuses[-10:]
    crashes = sum(s in ("crash", "timeout") for s in window)
    keeps = window.count("keep")

    found = next_direction(recent, len(statuses), near, Adapt())

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


def test_only_the_window_counts() -> None:
    old = [experiment(n, status="keep") for n in range(30)]
    new = [experiment(n, status="discard") for n in range(10)]

    assert next_direction([*old, *new], 40, 0, Adapt()).mode == "ablation"
    assert next_direction([*old, *new], 40, 0, Adapt(window=40)).mode == "exploit"


def test_faults_of_the_infrastructure_are_no_crashes() -> None:
    assert counts_as_crash(experiment(status="crash", error_kind="oom"))
    assert counts_as_crash(experiment(status="timeout"))
    assert not counts_as_crash(experiment(status="crash", error_kind="infra"))
    assert not counts_as_crash(experiment(status="stopped"))


def test_a_tag_may_decide_before_anything_has_finished() -> None:
    assert next_direction([], 0, 0, Adapt(min_finished=0)).mode == "explore"
