"""What is told of an experiment that is over, where something is still wanted of it."""

from __future__ import annotations

from state.errors import Conflict
from state.records import Experiment

REGISTER = "register a new experiment to try again"


def already_finished(e: Experiment, hint: str | None = None) -> Conflict:
    """It has its final status; without a `hint` its reader is shown where the outcome is."""
    return Conflict(
        f"{e.experiment_id} is already finished: {e.status}",
        hint=hint or outcome_of(e),
        fields={"experiment_status": e.status},
    )


def outcome_of(e: Experiment) -> str:
    """Where the outcome is shown."""
    return f"GET /api/experiment/{e.experiment_id} shows the outcome"
