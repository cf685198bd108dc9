"""Whatever a run leaves behind, the lab can take what is told of it: results.json and logs of any bytes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from functions.experiments.ending import Complete, Crash
from functions.kernel.contract import Request
from functions.kernel.lanes import Source
from functions.kernel.table import table
from functions.kernel.validation import validated
from tests.printing import printed_in
from workers.attempt.child import EndedCommand
from workers.attempt.job import FailedTraining, RunLease, TrainedRun, TrainingJob, hand_in
from workers.attempt.outcome import outcome
from workers.attempt.worktree import Checkout

JOB = TrainingJob("mar11-1", 1, 1, "abc1234", None, None, None, "prepare.py", 300.0, 660.0)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.text(st.characters(), max_size=12) | st.sampled_from(
    ["val_bpb", "Depth", "x" * 5000, "\ud800", "\u202eb", "a\0b", "a\nb", "İ" * 60]
)
FILES = st.dictionaries(NAMES, st.floats() | st.integers() | JSON, max_size=6)


class Door:
    """Takes what is handed in as the lab would, and keeps the request."""

    asked: Request | None = None

    async def report(self, function: str, request: Mapping[str, object]) -> str:
        self.asked = validated(table()[function], request)
        return "told"


async def told(result: TrainedRun | FailedTraining) -> Request | None:
    """The request that a result becomes."""
    door = Door()
    await hand_in(result, JOB, cast("RunLease", door))
    return door.asked


def ended(log: str = "", returncode: int = 0) -> EndedCommand:
    return EndedCommand("exit", returncode, log, is_empty=True, printed=printed_in(log, "val_bpb"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(results={"val_bpb": 0.5, "\ud800": 1.0}, log="", returncode=0)
@example(results={"val_bpb": 0.5, "x" * 1_000_000: 1.0}, log="", returncode=0)
@given(
    results=FILES.map(lambda found: {"val_bpb": 0.5, **found}) | FILES | JSON,
    log=st.binary(max_size=80).map(lambda raw: raw.decode("utf-8", "replace")),
    returncode=st.sampled_from([0, 0, 1, -9]),
)
async def test_of_any_results_file_the_lab_is_told_finite_numbers_under_short_printable_names(
    tmp_path: Path, results: object, log: str, returncode: int
) -> None:
    (tmp_path / "results.json").write_text(json.dumps(results))
    built = Checkout(tmp_path, tmp_path, Source("t1", None, differs=False), frozenset(), None, "e1")

    result = outcome(ended(log, returncode), built, "val_bpb", "cpu")

    assert isinstance(result, TrainedRun | FailedTraining)
    asked = await told(result)
    if isinstance(asked, Complete):
        assert math.isfinite(asked.val_bpb)
        for name, value in asked.metrics.items():
            assert len(name) <= 100
            assert name.isprintable()
            assert math.isfinite(value)
    else:
        assert isinstance(asked, Crash)
        assert len(asked.error) <= 20_000
    assert asked.model_dump_json()


@pytest.mark.parametrize("name", ["\udcff.py", "a\x1b[31m\0.py", "\u202e.py"])
async def test_a_failure_that_names_a_file_of_a_strange_name_keeps_its_kind(name: str) -> None:
    asked = await told(
        FailedTraining("evaluator", f"the run has made {name}, in the place of what the evaluator uses")
    )

    assert isinstance(asked, Crash)
    assert asked.kind == "evaluator"
    assert "in the place of what" in asked.error
    asked.error.encode()


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (
            "val_bpb: 0.95 -> 0.91",
            "exited with 0 but printed no line `val_bpb: NUMBER`; nearest: `val_bpb: 0.95 -> 0.91`, where the number"
            " is in doubt: print the metric and one number on a line, or open a tag with the name as it is printed",
        ),
        (
            "---\naccuracy: 0.9970",
            "val_bpb is not among the metrics printed: accuracy; it printed `accuracy: 0.9970`: open a tag with that"
            " metric",
        ),
    ],
)
def test_the_reason_for_no_score_says_what_was_printed_and_which_form_is_read(
    tmp_path: Path, log: str, reason: str
) -> None:
    built = Checkout(tmp_path, tmp_path, Source("t1", None, differs=False), frozenset(), None, "e1")

    result = outcome(ended(log), built, "val_bpb", "cpu")

    assert isinstance(result, FailedTraining)
    assert (result.kind, result.error.split("\n")[0]) == ("no_metrics", reason)
