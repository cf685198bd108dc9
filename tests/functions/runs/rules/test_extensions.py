"""What a run is judged by that was given more time than others."""

from __future__ import annotations

from typing import Any

import pytest

from functions.experiments.rules.judging import ResultReport
from functions.experiments.rules.verdict import Key
from functions.runs.rules.time_limits import at_base, base_value, with_extension
from state.decisions import Ending
from state.records import Experiment, RunVerdict
from tests.functions.sample import experiment

EXTENDED = {"extended_s": 120.0, "base_metric": 1.2, "base_progress": 1.01, "last_progress": 1.3}


def extended(**changes: Any) -> Experiment:
    return experiment(**{**EXTENDED, **changes})


@pytest.mark.parametrize(
    ("changes", "value"),
    [
        *(({}, 1.2), ({"last_progress": 1.051}, 1.2), ({"last_progress": 1.05}, None)),
        *(({"last_progress": None}, None), ({"extended_s": None}, None)),
    ],
)
def test_a_run_counts_as_extended_by_its_reports(changes: dict[str, object], value: float | None) -> None:
    assert base_value(extended(**changes)) == value


def test_what_it_printed_later_is_told_and_does_not_count() -> None:
    e = extended()
    judged = at_base(ResultReport(0.9, Key(), "d"), e)
    before = Ending(e, "discard", {"reason": "its code was measured before"}, RunVerdict())

    ending = with_extension(before, 0.9)

    assert judged.value == 1.2
    assert ending.fields["reason"] == (
        "it was given 120 s more than others, and printed 0.9 at their end: it is judged by what it reported at the"
        " end of its budget; its code was measured before"
    )
    assert ending.answer == RunVerdict(reason=ending.fields["reason"])


def test_a_run_that_has_not_used_its_extension_is_judged_by_what_it_printed() -> None:
    e = extended(last_progress=1.0)
    report, ending = ResultReport(0.9, Key(), "d"), Ending(e, "keep", {"reason": None})
    assert at_base(report, e) is report
    assert with_extension(ending, 0.9) is ending
