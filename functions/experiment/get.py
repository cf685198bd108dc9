"""experiment::get shows one experiment with its patch, attempts and ticks."""

from __future__ import annotations

from typing import Any

from functions.contract import Http, Request, Response, function
from functions.rules.keeps.noise import noise_of
from functions.views.claims import ClaimView, RetestView, claim_view, retest_view
from functions.views.experiments import View, view
from state.experiments import Experiments
from state.ids import Id
from state.noise import Noises


class Ask(Request):
    experiment_id: Id


class Shown(Response):
    experiment: View
    diff: str | None
    retests: list[RetestView]
    """Further runs of its code."""
    claim: ClaimView
    attempts: dict[int, dict[str, str]]
    ticks: list[tuple[float, float, float]]
    """(progress, metric, seconds since 1970) as the run reported them."""
    log_tail: str | None
    """The newest lines of the run's log: text of the training script, not to be trusted."""
    late_results: list[dict[str, Any]]


@function("experiment::get", Http("GET", "/api/experiment/{experiment_id}"), role="viewer")
async def get(request: Ask, experiments: Experiments, noises: Noises) -> Shown:
    """One experiment with everything that is known of it."""
    experiment = await experiments.get(request.experiment_id)
    [retests] = await experiments.retests([experiment])
    spread = await noises.spread(experiment.tag, experiment.gpu_class)
    patch = await experiments.patch(experiment)
    return Shown(
        experiment=view(experiment),
        diff=patch.decode("utf-8", "replace") if patch is not None else None,
        retests=[retest_view(r) for r in retests],
        claim=claim_view(retests, noise_of(spread.squares, spread.df)),
        attempts=await experiments.attempts(request.experiment_id),
        ticks=await experiments.ticks(request.experiment_id),
        log_tail=await experiments.log(request.experiment_id),
        late_results=await experiments.evidence(request.experiment_id),
    )
