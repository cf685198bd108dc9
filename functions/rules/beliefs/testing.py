"""A hypothesis in the validation phase, which one test decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from functions.rules.beliefs.learning import after_test
from functions.rules.beliefs.protocols import CellRun, RunningTest, blocked, verdict
from functions.rules.beliefs.specs import Spec, check_spec, varied_by
from functions.rules.beliefs.terms import FinishedRun
from state.errors import Invalid
from state.records import Dimension, Evidence, Hypothesis, Value

MOST_RUNS = 1000
"""Newest runs of a test that are kept while it goes on."""


def is_test(h: Hypothesis) -> bool:
    """Whether one test decides it."""
    return h.phase == "validation"


def running_test(
    test_spec: Mapping[str, Any] | None,
    reference_config: Mapping[str, Value],
    constraint: Mapping[str, Any],
    dimensions: Sequence[Dimension],
) -> RunningTest | None:
    """The test with the present dimensions; None: there is none, or the dimensions no longer allow it."""
    spec = _spec_now(test_spec, dimensions)
    if spec is None:
        return None
    return RunningTest(spec, dimensions, reference_config, constraint)


def can_be_run(h: Hypothesis, dimensions: Sequence[Dimension]) -> bool:
    """Whether all cells of its test can be run now."""
    spec = _spec_now(h.test_spec, dimensions)
    return spec is not None and blocked(spec, dimensions) is None


def test_terms(
    h: Hypothesis, dimensions: Sequence[Dimension]
) -> tuple[Sequence[str], Mapping[str, Any]] | None:
    """The dimensions that its test varies, and the values of its cells, for `shape_of`; None: no test can be run."""
    spec = _spec_now(h.test_spec, dimensions)
    return None if spec is None else varied_by(spec)


def _spec_now(test_spec: Mapping[str, Any] | None, dimensions: Sequence[Dimension]) -> Spec | None:
    try:
        return None if test_spec is None else check_spec(test_spec, dimensions)
    except Invalid:
        return None


def after_test_run(
    h: Hypothesis, run: FinishedRun, before: Sequence[FinishedRun], test: RunningTest, now: float
) -> tuple[Hypothesis, list[FinishedRun]]:
    """A hypothesis after one more run of its test, with the runs to keep; settled once the test is complete."""
    runs = [*before, run][-MOST_RUNS:]
    judgement = verdict(test, [CellRun(each.config, each.judged) for each in runs if each.ended != "failed"])
    if judgement.outcome is None:
        return h, runs
    said = Evidence(
        experiment_id=run.experiment_id,
        worker_id=run.worker_id,
        outcome=float(judgement.outcome == "win"),
        against="test",
        contrast=judgement.effect,
    )
    return after_test(h, said, now), []
