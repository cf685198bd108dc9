"""experiment::stop ends an experiment that is not finished."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from functions.contract import Call, Command, Response, function
from functions.rules.access import check_own
from functions.rules.keeps.reports import already_finished
from functions.rules.swarm.results import stopped
from state.change import Change
from state.decisions import Ending
from state.experiments import Experiments
from state.facts import RunFacts
from state.ids import ExperimentId
from state.records import OPEN


class Stop(Command):
    experiment_id: ExperimentId
    reason: Annotated[str, Field(max_length=1000)] = Field("asked to stop", description="why it is stopped")


class Stopped(Response):
    experiment_id: str
    status: str
    stopping: bool
    """True while its worker still has to end the run."""


@function("experiment::stop", role="agent", writes=True)
async def stop(request: Stop, call: Call, experiments: Experiments) -> Stopped:
    """Stop it: at once where no worker has it, else the worker ends the run within two seconds."""

    async def decide(change: Change) -> Stopped:
        run = await experiments.run_facts(change, request.experiment_id)
        e = run.experiment
        check_own(call.caller, e.owner, e.experiment_id)
        if e.status == "stopped":
            return change.idle(Stopped(experiment_id=e.experiment_id, status="stopped", stopping=False))
        if e.status not in OPEN:
            raise already_finished(e)
        if e.status in ("leased", "running") and e.worker_id is None:
            if not e.stopping:
                experiments.ask_to_stop(change, e, request.reason)
            return Stopped(experiment_id=e.experiment_id, status=e.status, stopping=True)
        await experiments.finish(change, run, _ending(run, request.reason))
        return Stopped(experiment_id=e.experiment_id, status="stopped", stopping=False)

    return await experiments.judging(request.experiment_id, decide)


def _ending(run: RunFacts, reason: str) -> Ending:
    """The ending for an experiment that stops at once. Time of a swarm's worker counts as spent."""
    if run.experiment.worker_id is not None and run.experiment.status == "running":
        return stopped(run.experiment, run.now, reason)
    return Ending(run.experiment, "stopped", {"error": reason}, reason=reason)
