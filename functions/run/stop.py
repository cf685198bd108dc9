"""run::stop ends a run of a swarm for an operator."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from functions.contract import Command, Http, Response, function
from functions.rules.keeps.reports import already_finished
from functions.rules.swarm.results import stopped
from functions.views.swarm_runs import not_of_a_swarm
from state.change import Change
from state.experiments import Experiments
from state.ids import ExperimentId


class StopRun(Command):
    run_id: ExperimentId
    reason: Annotated[str, Field(min_length=1, max_length=1000)] = Field(
        "an operator stopped it", description="why, for the record", examples=["the machine is needed"]
    )


class StoppedRun(Response):
    ok: bool


@function("run::stop", Http("DELETE", "/runs/{run_id}"), role="operator", writes=True, keeps_answer=False)
async def stop(request: StopRun, experiments: Experiments) -> StoppedRun:
    """Stop a run: it ends now, and its worker is told at its next report."""

    async def decide(change: Change) -> StoppedRun:
        run = await experiments.run_facts(change, request.run_id)
        e = run.experiment
        if e.worker_id is None:
            raise not_of_a_swarm(request.run_id)
        if e.status == "stopped":
            return change.idle(StoppedRun(ok=True))
        if e.status != "running":
            raise already_finished(e)
        await experiments.finish(change, run, stopped(e, run.now, request.reason))
        return StoppedRun(ok=True)

    return await experiments.judging(request.run_id, decide)
