"""What stands and what is history."""

from __future__ import annotations

from functions.experiments.rules.keeping import MOST_RIVALS, MOST_STANDING, new_best, restored
from state.records import Best, Link
from tests.functions.sample import experiment


def test_what_leaves_the_pile_takes_its_rivals_along() -> None:
    best: Best | None = None
    for number in range(1, MOST_STANDING + 1):
        best = new_best(experiment(number, keep_rule="confirmed"), float(number), best, "maximize")
    assert best is not None
    first = best.chain[0].val_bpb
    rival = new_best(experiment(900, keep_rule="confirmed"), first + 0.5, best, "maximize")

    after = new_best(experiment(901, keep_rule="confirmed"), 1000.0, rival, "maximize")

    assert rival is not None
    assert after is not None
    assert [link.experiment_id for link in rival.rivals] == ["mar11-900"]
    assert after.chain[0].val_bpb > first + 0.5
    assert after.rivals == []


def test_only_the_best_few_that_lost_to_a_provisional_keep_are_rivals() -> None:
    best: Best | None = None
    for number, value in ((1, 1.0), (2, 0.5), *((n, 0.9 - n / 100) for n in range(3, 5 + MOST_RIVALS))):
        best = new_best(experiment(number, keep_rule="confirmed"), value, best, "minimize")

    assert best is not None
    assert [link.experiment_id for link in best.rivals] == [f"mar11-{n}" for n in (8, 7, 6, 5)]
    assert new_best(experiment(99, keep_rule="confirmed"), 0.95, best, "minimize") is None


def test_after_a_retraction_other_results_that_beat_the_incumbent_are_its_rivals_and_no_own_code() -> None:
    first = new_best(experiment(1), 1.0, None, "minimize", "a")
    wrong = new_best(experiment(2), 0.5, first, "minimize", "b")
    lost = [
        Link(experiment_id=f"mar11-{n}", val_bpb=value, commit_sha="c", code=code)
        for n, value, code in ((3, 0.9, "a"), (4, 0.8, "c"), (5, 1.1, "d"))
    ]
    assert first is not None
    assert wrong is not None

    after = restored(wrong, "mar11-2", first.standing(), lost, "minimize")

    assert after is not None
    assert (after.experiment_id, [link.experiment_id for link in after.rivals]) == ("mar11-1", ["mar11-4"])
