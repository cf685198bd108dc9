"""Experiments in answers: whole, shortened, and with their retests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field

from functions.formats.metrics_block import deciding_line
from functions.rules.keeps.noise import claim, noise_of
from functions.rules.keeps.retests import fresh_runs
from functions.rules.search.suggestions import short
from state.facts import Runs, Spread
from state.records import Experiment, ExperimentRecord, Result, Score, Selection, Sketch, stamp
from state.records.experiments import Measured

IN_PROGRESS = ("leased", "running")
TIMES = ("registered_at", "queued_at", "started_at", "finished_at")


class ExperimentView(ExperimentRecord):
    """An experiment in answers."""

    id: str
    """`experiment_id` once more."""
    parent_id: str | None
    """The first of `parent_ids`."""
    running: bool
    """It trains now: on a worker's GPU, or, while it is only registered, by its agent."""
    has_diff: bool
    """Its patch is known: GET /api/experiment/{id} shows it."""
    registered_at: str
    queued_at: str | None = None
    """When its present attempt began to wait for a GPU."""
    started_at: str | None = None
    """When its present attempt began on a worker. If its agent trains it: when it was registered."""
    finished_at: str | None = None

    diff_id: str | None = Field(None, exclude=True)
    sent_diff_id: str | None = Field(None, exclude=True)
    finish_number: int | None = Field(None, exclude=True)
    policy_version: int = Field(0, exclude=True)
    fence: int = Field(0, exclude=True)

    @classmethod
    def values(cls, fields: Mapping[str, str | None]) -> dict[str, Any]:
        """From an experiment's hash as Redis returns it."""
        values = super().values(fields)
        for name in TIMES:
            if name in values:
                values[name] = stamp(float(values[name]))
        values.update(_beside(values, int(values.get("attempt", 0))))
        return values


def view(e: Experiment) -> ExperimentView:
    """An experiment in answers."""
    times = {name: stamp(at) for name in TIMES if (at := getattr(e, name)) is not None}
    values = {name: value for name, value in vars(e).items() if value is not None} | times
    return ExperimentView.model_validate(values | _beside(values, e.attempt))


def score_of(e: Measured) -> Score | None:
    """Source of its value; None without a value."""
    return None if e.val_bpb is None else e.score or "reported"


def _beside(shown: Mapping[str, Any], attempt: int) -> dict[str, Any]:
    """Derived fields with published names."""
    by_its_agent = attempt == 0
    status, parents = shown["status"], shown.get("parent_ids")
    return {
        "id": shown["experiment_id"],
        "parent_id": parents[0] if parents else None,
        "running": status in IN_PROGRESS or (by_its_agent and status == "registered"),
        "has_diff": "diff_id" in shown,
        "score": None if shown.get("val_bpb") is None else shown.get("score") or "reported",
        "started_at": shown.get("started_at") or (shown["registered_at"] if by_its_agent else None),
    }


class RetestView(BaseModel):
    """One more run of an experiment's code."""

    retest_id: str
    seed: int | None
    status: str
    val_bpb: float | None
    score: Score | None
    """Source of the value: printed by the code that was scored, or measured by the tag's trusted evaluator."""
    reported: float | None
    """The value that train.py printed, if the score is trusted."""


class ClaimView(BaseModel):
    """Unbiased value of an experiment: the mean of its further runs, without the run for which it was kept."""

    claimed_bpb: float | None = None
    """None without further runs."""
    claimed_n: int = 0
    claimed_interval: tuple[float, float] | None = None
    """95 %; None while the noise is not known."""


def retest_view(retest: Experiment) -> RetestView:
    return RetestView(
        retest_id=retest.experiment_id,
        seed=retest.seed,
        status=retest.status,
        val_bpb=retest.val_bpb,
        score=score_of(retest),
        reported=retest.reported,
    )


def claim_of(runs: Runs[Experiment], noise: Spread) -> ClaimView:
    """The claim from an experiment's retests, with the noise of its tag and GPU class."""
    fresh = [r.own_value for r in fresh_runs(runs.experiment, runs.retests) if r.own_value is not None]
    found = claim(fresh, noise_of(noise.squares, noise.df))
    if found is None:
        return ClaimView()
    interval = None if found.low is None or found.high is None else (found.low, found.high)
    return ClaimView(claimed_bpb=found.claimed_bpb, claimed_n=found.runs, claimed_interval=interval)


def sketch_view(e: Sketch) -> dict[str, Any]:
    """An experiment by the fields that agents use. Empty fields are left out, except value and agent."""
    said = {name: getattr(e, name) for name in e.FOR_AGENTS} | in_few_words(e)
    return {
        name: value
        for name, value in said.items()
        if name in ("val_bpb", "agent") or not (value is None or value is False)
    }


def in_few_words(e: Sketch) -> dict[str, Any]:
    """Long fields, shortened."""
    return {
        "claimed": e.is_claim,
        "description": short(e.description, 60),
        "commit_sha": e.commit_sha[:12],
        "error": short(deciding_line(e.error or "", e.error_kind), 100) or None,
    }


def result_view(e: Result) -> dict[str, Any]:
    """A keep as a point of progress."""
    return {
        "id": e.experiment_id,
        "val_bpb": e.val_bpb,
        **({"delta_bpb": e.delta_bpb} if e.delta_bpb is not None else {}),
        "description": e.description,
        "category": e.category,
        "at": stamp(e.finished_at) if e.finished_at is not None else None,
    }


def selection_view(s: Selection) -> dict[str, Any]:
    """A selection without an experiment."""
    return {
        "selection_id": s.selection_id,
        "agent": s.agent,
        "kind": s.kind,
        "trace_id": s.trace_id,
        "parent_ids": s.parent_ids,
        "base_commit_sha": s.base_commit_sha,
        "lease_expires_at": stamp(s.lease_expires_at),
    }
