"""swarm::sweep ends the runs whose workers sent no result in time."""

from __future__ import annotations

from functions.contract import Command, Every, Response, function
from functions.rules.swarm.handing_out import lost
from state.experiments import Experiments


class SweepSwarms(Command):
    """Nothing to say."""


class SweptSwarms(Response):
    lost: list[str]
    """Runs that are lost now; their configs wait for other workers."""


SILENT = "its worker sent no result in time"


@function("swarm::sweep", Every("sweep_s"), role="operator", writes=True)
async def sweep(request: SweepSwarms, experiments: Experiments) -> SweptSwarms:
    """Mark runs as lost whose workers sent no result in time; a late result still counts once."""
    silent = [run for run in await experiments.overdue() if run.status == "running"]
    return SweptSwarms(
        lost=[e.experiment_id for e in silent if await experiments.end(lost(e, SILENT), only_overdue=True)]
    )
