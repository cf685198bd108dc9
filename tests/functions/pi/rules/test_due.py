"""When a program is written anew, and by whom."""

from __future__ import annotations

from typing import Any

import pytest

from functions.pi.rules.findings import ANSWERED_S, begins_cycle, next_step, reason_due
from state.program_facts import DueFacts, ProgramAsk, ProgramVersion
from state.records import Strategy, Tag


def version(number: int, results: int, strategy: str = "explore") -> ProgramVersion:
    return ProgramVersion(number, 0.0, "templates", "for the test", results, strategy, "text", "digest")


def facts(results: int, **more: Any) -> DueFacts:
    tag = Tag(name="swarm", branch="b", created_at=0.0, kept=results, total=results)
    strategy = Strategy(mode="explore", explore_ratio=0.5, temperature=0.5, reason="")
    given: dict[str, Any] = {"populations": [], "current": None, "ask": None, "base": None, **more}
    return DueFacts(now=1000.0, tag=tag, strategy=strategy, **given)


@pytest.mark.parametrize(
    ("current", "due", "not_due"),
    [
        (None, [50, 51], [0, 49]),
        (version(1, 50), [100], [80, 99]),
        (version(1, 50, "exploit"), [60], [51]),  # another strategy makes one due soon, not at once
    ],
    ids=["the first version", "another", "after a change of strategy"],
)
def test_a_version_is_due_after_fifty_results_or_a_change_of_strategy(
    current: ProgramVersion | None, due: list[int], not_due: list[int]
) -> None:
    assert all(reason_due(facts(results, current=current)) is not None for results in due)
    assert all(reason_due(facts(results, current=current)) is None for results in not_due)


@pytest.mark.parametrize(("results", "begins"), [(60, False), (99, False), (100, True), (120, True)])
def test_an_adopted_draft_begins_a_cycle_once_in_fifty_results(results: int, begins: bool) -> None:
    assert begins_cycle(results, version(3, 59)) is begins
    assert begins_cycle(49, None) is False
    assert begins_cycle(50, None) is True


def test_without_a_language_model_the_templates_write() -> None:
    assert next_step(facts(50), has_author=False).what == "templates"
    assert next_step(facts(9), has_author=False).what == "nothing"
    assert next_step(facts(9), has_author=False, on_demand="now").what == "templates"


def test_a_language_model_is_asked_waited_for_asked_again_and_given_up() -> None:
    waits, late = 1000.0, 1000.0 - ANSWERED_S
    asks = [ProgramAsk(1, n, at, "50 results") for n, at in ((1, waits), (1, late), (2, waits), (2, late))]
    steps = [next_step(facts(50, ask=ask), has_author=True) for ask in (None, *asks)]
    asked = [("ask", 1), ("wait", 1), ("ask", 2), ("wait", 2)]
    assert [(s.what, s.attempt) for s in steps] == [*asked, ("templates", 0)]
