"""How an experiment is shown: every field, times in RFC 3339, without our bookkeeping."""

from __future__ import annotations

from typing import Any

from state.records import Experiment, stamp

View = dict[str, Any]
TIMES = ("registered_at", "queued_at", "started_at", "finished_at")
INTERNAL = {"diff_id", "finish_number", "policy_version", "fence"}


def view(experiment: Experiment) -> View:
    """The experiment as it stands in answers; `id` repeats `experiment_id`."""
    shown = experiment.model_dump(exclude=INTERNAL)
    for name in TIMES:
        if shown[name] is not None:
            shown[name] = stamp(shown[name])
    shown["id"] = experiment.experiment_id
    shown["has_diff"] = experiment.diff_id is not None
    return shown
