"""How an experiment is shown: every field, times in RFC 3339, without our bookkeeping."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

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
    finish_number: int | None = Field(None, exclude=True)
    policy_version: int = Field(0, exclude=True)
    fence: int = Field(0, exclude=True)

    @classmethod
    def parse(cls, fields: Mapping[str, str]) -> Self:
        """From an experiment's hash as Redis returns it."""
        times = {name: stamp(float(fields[name])) for name in TIMES if fields.get(name)}
        added = {"id": fields["experiment_id"], "has_diff": "true" if fields.get("diff_id") else "false"}
        return super().parse({**fields, **times, **added})


def view(e: Experiment) -> ExperimentView:
    """An experiment as it stands in answers."""
    values = vars(e)
    times = {name: stamp(at) for name in TIMES if (at := values[name]) is not None}
    return ExperimentView.model_validate(
        {**values, **times, "id": e.experiment_id, "has_diff": e.diff_id is not None}
    )
