"""Whether a search improves, as its events tell."""

from __future__ import annotations

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


def test_a_search_of_fewer_than_25_results_counts_as_improving() -> None:
    assert told(24).is_improving
    assert not told(25 + LATE).is_improving


def test_a_search_improves_while_its_best_run_is_one_of_the_newest_50_and_clearly_better() -> None:
    assert told(100, (5, -0.05), (60, -0.06)).is_improving
    assert not told(100, (5, -0.05), (60, -0.0504)).is_improving
    assert not told(100, (5, -0.05), (50, -0.06)).is_improving
    assert told(40, (5, -0.01)).is_improving


def test_a_best_from_before_that_is_restored_is_no_improvement() -> None:
    course = told(100, (5, -0.05), (60, -0.06))
    course.hear("best.changed", {"experiment_id": "swarm-5", "val_bpb": -0.05})
    assert not course.is_improving


def test_what_changed_within_the_newest_ten_results_is_not_sure() -> None:
    assert not told(100, (5, -0.05), (95, -0.06)).is_improving
    assert told(105, (5, -0.05), (95, -0.06)).is_improving


def test_crashes_are_no_results_and_stopped_runs_are() -> None:
    course = SearchProgress()
    for number, status in enumerate(["crash", "stopped", "keep", "discard"]):
        course.hear("experiment.finished", {"experiment_id": f"swarm-{number}", "status": status})
    assert course.results == 3
