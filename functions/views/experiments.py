"""How an experiment is shown: every field, times in RFC 3339, without our bookkeeping."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from state.records import Experiment, Trial, stamp

TIMES = ("registered_at", "queued_at", "started_at", "finished_at")


class ExperimentView(Trial):
    """An experiment as it stands in answers."""

    id: str
    """`experiment_id` once more."""
    has_diff: bool
    registered_at: str
    queued_at: str | None = None
    started_at: str | None = None
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
        return values | {"id": values["experiment_id"], "has_diff": "diff_id" in values}


def view(e: Experiment) -> ExperimentView:
    """An experiment as it stands in answers."""
    values = vars(e)
    times = {name: stamp(at) for name in TIMES if (at := values[name]) is not None}
    return ExperimentView.model_validate(
        {**values, **times, "id": e.experiment_id, "has_diff": e.diff_id is not None}
    )
