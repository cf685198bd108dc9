"""How an experiment is shown: every field, times in RFC 3339, without our bookkeeping."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from state.records import Experiment, Score, Trial, stamp
from state.records.experiments import Measured

IN_PROGRESS = ("leased", "running")
TIMES = ("registered_at", "queued_at", "started_at", "finished_at")


class ExperimentView(Trial):
    """An experiment as it stands in answers."""

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
    """When its present attempt began on a worker; when it was registered, where its agent trains it."""
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
    """An experiment as it stands in answers."""
    times = {name: stamp(at) for name in TIMES if (at := getattr(e, name)) is not None}
    values = {name: value for name, value in vars(e).items() if value is not None} | times
    return ExperimentView.model_validate(values | _beside(values, e.attempt))


def score_of(e: Measured) -> Score | None:
    """Whose number its value is; None: there is none."""
    return whose(e.val_bpb, e.score)


def whose(value: object, score: Score | None) -> Score | None:
    """The same; values from before scores were told apart are reported ones."""
    return None if value is None else score or "reported"


def _beside(shown: Mapping[str, Any], attempt: int) -> dict[str, Any]:
    """What follows from the fields that there are, under the names that were published."""
    by_its_agent = attempt == 0
    status, parents = shown["status"], shown.get("parent_ids")
    return {
        "id": shown["experiment_id"],
        "parent_id": parents[0] if parents else None,
        "running": status in IN_PROGRESS or (by_its_agent and status == "registered"),
        "has_diff": "diff_id" in shown,
        "score": whose(shown.get("val_bpb"), shown.get("score")),
        "started_at": shown.get("started_at") or (shown["registered_at"] if by_its_agent else None),
    }
