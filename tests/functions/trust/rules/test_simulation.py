"""Whether a search improves, as its events tell."""

from __future__ import annotations

import pytest

from functions.trust.rules.audit_tags import LATE, SearchProgress


def told(results: int, *bests: tuple[int, float]) -> SearchProgress:
    """So many results; after some of them the best is the run of that number, with its value."""
    course = SearchProgress()
    for number in range(1, results + 1):
        for best, value in bests:
            if best == number:
                course.hear("best.changed", {"experiment_id": f"swarm-{best}", "val_bpb": value})
        course.hear("experiment.finished", {"experiment_id": f"swarm-{number}", "status": "discard"})
    return course


@pytest.mark.parametrize(
    ("results", "bests", "is_improving"),
    [
        *((24, [], True), (25 + LATE, [], False)),  # fewer than 25 results count as improving
        (100, [(5, -0.05), (60, -0.06)], True),
        (100, [(5, -0.05), (60, -0.0504)], False),  # not clearly better
        (100, [(5, -0.05), (50, -0.06)], False),  # not among the newest 50
        (40, [(5, -0.01)], True),
        (100, [(5, -0.05), (95, -0.06)], False),  # what changed within the newest ten is not sure
        (105, [(5, -0.05), (95, -0.06)], True),
    ],
)
def test_whether_a_search_improves(results: int, bests: list[tuple[int, float]], is_improving: bool) -> None:
    assert told(results, *bests).is_improving == is_improving


def test_a_best_from_before_that_is_restored_is_no_improvement() -> None:
    course = told(100, (5, -0.05), (60, -0.06))
    course.hear("best.changed", {"experiment_id": "swarm-5", "val_bpb": -0.05})
    assert not course.is_improving


def test_crashes_are_no_results_and_stopped_runs_are() -> None:
    course = SearchProgress()
    for number, status in enumerate(["crash", "stopped", "keep", "discard"]):
        course.hear("experiment.finished", {"experiment_id": f"swarm-{number}", "status": status})
    assert course.results == 3
