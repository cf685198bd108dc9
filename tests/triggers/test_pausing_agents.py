from __future__ import annotations

from typing import Any

import pytest

from triggers.agents.keeper import (
    Patience,
    end_of_night,
    overdue,
    own_experiments,
    pause_after_limit,
    pause_before,
)

PATIENCE = Patience(silent_s=60, idle_s=30, starts=5)


def brief(**fields: Any) -> dict[str, Any]:
    lists = dict.fromkeys(("open_experiments", "open_selections", "last_results"), ())
    return {"tag": "mar11", "paused": False, "budget": None, **lists} | fields


def budget(left: float, reserved: float = 0.0) -> dict[str, Any]:
    return {"gpu_seconds": {"left": left, "reserved": reserved}, "runs": {"left": None, "reserved": 3.0}}


def test_it_ends_with_a_pause_and_with_a_budget_that_nothing_can_come_back_to() -> None:
    mine = [{"experiment_id": "mar11-1", "status": "running", "agent": "ada"}]

    assert end_of_night(brief(paused=True)) == "mar11 is paused"
    assert end_of_night(brief(budget=budget(0.0))) == "mar11 has no gpu seconds left"
    assert end_of_night(brief(budget=budget(-5.0, reserved=9.0))) is None
    assert end_of_night(brief(budget=budget(0.0), open_experiments=mine)) is None


@pytest.mark.parametrize(
    ("silent_s", "idle_s", "why"),
    [
        (60, 30, None),
        (61, 0, "it has printed nothing for 61 s"),
        (0, 31, "it has worked on no experiment for 31 s"),
    ],
)
def test_a_process_is_left_alone_until_its_time_is_over(
    silent_s: float, idle_s: float, why: str | None
) -> None:
    assert overdue(silent_s, idle_s, PATIENCE) == why


def test_each_start_that_came_to_nothing_doubles_the_pause() -> None:
    assert [pause_before(n) for n in (0, 1, 2, 5)] == [2, 4, 8, 64]
    assert pause_before(10_000) == 600


def test_experiments_of_others_are_no_work_of_this_agent() -> None:
    shown = brief(
        open_experiments=[{"experiment_id": "mar11-3", "status": "queued", "agent": "ada"}],
        last_results=[
            {"experiment_id": "mar11-1", "status": "keep", "agent": "ada"},
            {"experiment_id": "mar11-2", "status": "keep", "agent": None},
        ],
    )

    assert own_experiments(shown, "ada") == {"mar11-1": "keep", "mar11-3": "queued"}
    assert own_experiments(shown, "bob", {"mar11-2"}) == {"mar11-2": "keep"}


@pytest.mark.parametrize(
    ("limits", "left_s", "pause_s"),
    [
        (1, None, 60),
        (2, None, 120),
        (7, None, 3600),
        (10_000, None, 3600),
        (1, 5, 5),
        (2, 5, 120),
        (1, 20_000, 20_000),
        (3, 20_000, 20_000),
    ],
)
def test_a_limit_is_waited_for_until_its_end_or_twice_as_long_each_time(
    limits: int, left_s: float | None, pause_s: float
) -> None:
    assert pause_after_limit(limits, left_s) == pause_s
