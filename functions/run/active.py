"""run::active lists the active runs of a swarm."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, RootModel

from functions.contract import Http, function
from functions.of_swarm import OfSwarm
from functions.rules.stopping.extensions import has_used_extension
from functions.run._stores import Stores
from state.settings import Settings
from state.swarm_facts import ActiveRun


class ReadActiveRuns(OfSwarm):
    """No field but the tag."""


class ActiveRunView(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=False, defer_build=True)

    id: str
    worker_id: str | None
    state: Literal["active", "complete", "stopped", "extended"]
    progress: float
    """0 before its first report."""
    metric: float | None
    """Its last reported value; under stopping.tick_source stdout, the last printed loss."""
    elapsed: float
    """Seconds since it was handed out."""
    budget: float
    """Seconds that it may train, in all."""
    population: str | None


class ActiveRuns(RootModel[list[ActiveRunView]]):
    """Every run, from its hand-out until its result; the oldest first."""


def _state(run: ActiveRun) -> Literal["active", "stopped", "extended"]:
    if run.stopping:
        return "stopped"
    return "extended" if has_used_extension(run.extended_s, run.last_progress) else "active"


@function("run::active", Http("GET", "/runs/active"), role=("viewer", "worker"))
async def active(request: ReadActiveRuns, stores: Stores, settings: Settings) -> ActiveRuns:
    """Every active run of a swarm, the oldest first."""
    now, runs = await stores.swarms.active_runs(request.tag_in(settings))
    return ActiveRuns(
        [
            ActiveRunView(
                id=run.experiment_id,
                worker_id=run.worker_id,
                state=_state(run),
                progress=run.last_progress or 0.0,
                metric=run.last_metric,
                elapsed=max(0.0, now - (run.started_at or now)),
                budget=(run.budget_s or 0.0) + (run.extended_s or 0.0),
                population=run.population_id,
            )
            for run in runs
        ]
    )
