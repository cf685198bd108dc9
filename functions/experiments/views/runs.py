"""Experiments in answers: whole, shortened, with their retests and their timeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import BaseModel, Field

from functions.formats.metrics_block import deciding_line
from functions.kernel.contract import Response
from functions.search.rules.suggestions import short
from functions.trust.rules.noise import claim
from functions.trust.rules.retests import fresh_runs
from state.facts import Runs, Spread
from state.records import (
    OPEN,
    Experiment,
    ExperimentRecord,
    Result,
    Score,
    Selection,
    Sketch,
    stamp,
    stamped,
    view_of,
)
from state.records.experiments import Measured

# -- Experiments in answers: whole, shortened, and with their retests.

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
    delta_bpb: float | None
    """Difference to its worker's baseline, in a swarm."""
    by_value: bool
    """Whether a swarm's run is judged by `val_bpb`, not by `delta_bpb`."""
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
    return view_of(RetestView, retest, retest_id=retest.experiment_id, score=score_of(retest))


def claim_of(runs: Runs[Experiment], noise: Spread) -> ClaimView:
    """The claim from an experiment's retests, with the noise of its tag and GPU class."""
    fresh = [r.own_value for r in fresh_runs(runs.experiment, runs.retests) if r.own_value is not None]
    found = claim(fresh, noise.noise)
    if found is None:
        return ClaimView()
    interval = None if found.low is None or found.high is None else (found.low, found.high)
    return ClaimView(claimed_bpb=found.claimed_bpb, claimed_n=found.runs, claimed_interval=interval)


def sketch_view(e: Sketch) -> dict[str, Any]:
    """An experiment by the fields that agents use. Empty fields are left out, except value and agent."""
    said = vars(e) | in_few_words(e)
    return {
        name: value
        for name in e.FOR_AGENTS
        if not ((value := said[name]) is None or value is False) or name in ("val_bpb", "agent")
    }


def in_few_words(e: Sketch) -> dict[str, Any]:
    """Long fields, shortened, and no delta where values are compared."""
    return {
        "claimed": e.is_claim,
        "delta_bpb": e.delta_bpb if e.by_delta else None,
        "description": short(e.description, 60),
        "commit_sha": e.commit_sha[:12],
        "error": e.error and (short(deciding_line(e.error, e.error_kind), 100) or None),
    }


def result_view(e: Result) -> dict[str, Any]:
    """A keep as a point of progress."""
    return {
        "id": e.experiment_id,
        "val_bpb": e.val_bpb,
        **({"delta_bpb": e.delta_bpb} if e.by_delta else {}),
        "description": e.description,
        "category": e.category,
        "at": stamped(e.finished_at),
    }


def selection_view(s: Selection) -> dict[str, Any]:
    """A selection without an experiment."""
    fields = {"selection_id", "agent", "kind", "trace_id", "parent_ids", "base_commit_sha"}
    return s.model_dump(include=fields) | {"lease_expires_at": stamp(s.lease_expires_at)}


# -- The timeline of an experiment: how long it waited, trained and was scored, attempt by attempt.

PhaseName = Literal["queued", "leased", "preparing", "training", "scoring", "retest"]


class Phase(Response):
    """A part of an experiment's time. Times are seconds since 1970."""

    phase: PhaseName
    """queued: it waits for a GPU. leased: its worker has not begun. preparing: its code is checked out. training: by
    a worker, or by its agent. scoring: a trusted evaluator measures it. retest: one more run of its code."""
    since: float
    until: float | None
    """Null: it goes on."""
    attempt: int
    """0: its agent trains it."""
    gpu_id: str | None = None
    retest_id: str | None = None
    status: str | None = None
    """Status with which an attempt or a retest ended."""


def timeline(runs: Runs[Experiment], attempts: Mapping[int, Mapping[str, str]]) -> list[Phase]:
    """The phases of an experiment in the order in which they began."""
    e = runs.experiment
    found = [phase for number, attempt in attempts.items() for phase in _of_attempt(e, number, attempt)]
    if not attempts:
        found.append(_whole(e, "training"))
    found += [_whole(r, "retest") for r in runs.retests]
    return sorted(found, key=lambda phase: phase.since)


def _whole(e: Experiment, name: PhaseName) -> Phase:
    """From its registration to its end."""
    return Phase(
        phase=name,
        since=e.registered_at,
        until=e.finished_at,
        attempt=e.attempt,
        gpu_id=e.gpu_id,
        retest_id=e.experiment_id if e.retest_of else None,
        status=None if e.status in OPEN else e.status,
    )


def _of_attempt(e: Experiment, number: int, attempt: Mapping[str, str]) -> Iterator[Phase]:
    times = {name: float(text) for name, text in attempt.items() if name.endswith("_at")}
    status, gpu_id, ended = attempt["status"], attempt.get("gpu_id"), times.get("ended_at")
    if status == "queued":
        times = {name: at for name, at in times.items() if name == "queued_at"}
    is_last = number == e.attempt
    trained = _trained_at(e, times) if is_last else None
    begins: list[tuple[PhaseName, float | None]] = [
        ("queued", times.get("queued_at")),
        ("leased", times.get("leased_at")),
        ("preparing", times.get("started_at")),
        ("training", times.get("built_at")),
        ("scoring", trained),
    ]
    there: list[tuple[PhaseName, float]] = [(name, at) for name, at in begins if at is not None]
    for nth, (name, since) in enumerate(there):
        is_final = nth == len(there) - 1
        until = ended if is_final else there[nth + 1][1]
        how = status if is_final and ended is not None else None
        place = None if name == "queued" else gpu_id
        yield Phase(phase=name, since=since, until=until, attempt=number, gpu_id=place, status=how)


def _trained_at(e: Experiment, times: Mapping[str, float]) -> float | None:
    """When the training ended, by the seconds that its worker measured; None: unknown, or without a trusted score."""
    built, ended = times.get("built_at"), times.get("ended_at")
    if e.score != "trusted" or built is None or ended is None or e.wall_seconds is None:
        return None
    return min(built + e.wall_seconds, ended)
