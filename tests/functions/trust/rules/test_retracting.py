"""Results that can be taken back, and the results that lost to one."""

from __future__ import annotations

from typing import Any

import pytest

from functions.trust.rules.retracting import check_retractable, lost_to
from state.errors import Conflict
from tests.functions.sample import experiment

RETRACTED = experiment(2, status="keep", val_bpb=0.5, finish_number=2)


def lost(number: int, **fields: Any) -> Any:
    return experiment(number, **{"status": "discard", "val_bpb": 0.9, "finish_number": number, **fields})


def test_what_lost_to_a_result_came_after_it_or_was_judged_by_its_runs() -> None:
    before, after, repeat = lost(1), lost(3), lost(4, repeats_best=True)

    def names(*corrected: str) -> list[str]:
        return [link.experiment_id for link in lost_to(RETRACTED, [before, after, repeat], corrected)]

    assert names() == ["mar11-3"]
    assert names("mar11-1") == ["mar11-1", "mar11-3"]
    assert lost_to(None, [before, after]) == []


def test_where_the_lab_can_repeat_some_of_them_the_others_are_no_rivals() -> None:
    found = lost_to(RETRACTED, [lost(3), lost(4, attempt=1)])
    assert [link.experiment_id for link in found] == ["mar11-4"]


@pytest.mark.parametrize(
    ("fields", "hint"),
    [
        ({"status": "registered"}, "stop it"),
        ({"status": "running"}, "stop it"),
        ({"status": "measured", "retest_of": "mar11-3"}, "retract mar11-3"),
        ({"status": "retracted", "retracted_because": "a wrong unit"}, "GET /api/experiment/mar11-1"),
        ({"status": "crash"}, "only what was kept or discarded"),
    ],
)
def test_what_has_no_result_that_counts_cannot_be_taken_back(fields: dict[str, Any], hint: str) -> None:
    with pytest.raises(Conflict) as refusal:
        check_retractable(experiment(**fields))
    assert hint in (refusal.value.hint or "")
    assert refusal.value.fields["experiment_status"] == fields["status"]
