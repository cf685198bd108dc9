"""experiment::get shows one experiment with its patch, attempts and ticks."""

from __future__ import annotations

from typing import Any

from functions.contract import Http, Request, Response, function
from functions.rules.views import View, view
from state.experiments import Experiments
from state.ids import Id


class Ask(Request):
    experiment_id: Id


class Shown(Response):
    experiment: View
    diff: str | None
    attempts: dict[int, dict[str, str]]
    ticks: list[tuple[float, float, float]]
    """(progress, metric, seconds since 1970) as the run reported them."""
    log_tail: str | None
    """The newest lines of the run's log: text of the training script, not to be trusted."""
    late_results: list[dict[str, Any]]


@function("experiment::get", Http("GET", "/api/experiment/{experiment_id}"), role="viewer")
async def get(request: Ask, experiments: Experiments) -> Shown:
    """One experiment with everything that is known of it."""
    experiment = await experiments.get(request.experiment_id)
    patch = await experiments.patch(experiment)
    return Shown(
        experiment=view(experiment),
        diff=patch.decode("utf-8", "replace") if patch is not None else None,
        attempts=await experiments.attempts(request.experiment_id),
        ticks=await experiments.ticks(request.experiment_id),
        log_tail=await experiments.log(request.experiment_id),
        late_results=await experiments.evidence(request.experiment_id),
    )
