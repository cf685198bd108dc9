"""gpu::stopped ends an experiment that its worker has stopped by the lab's order."""

from __future__ import annotations

from functions.contract import Call, Response, function
from functions.gpu._lease import OfLease, lease_of
from functions.gpu._stores import Stores
from functions.rules.keeps.reports import check_open
from functions.rules.stopping.ticks import last_value
from state.decisions import Ending
from state.settings import Settings


class RunStopped(Response):
    experiment_id: str
    status: str


@function("gpu::stopped", role="worker", writes=True, keeps_answer=False)
async def stopped(request: OfLease, call: Call, stores: Stores, settings: Settings) -> RunStopped:
    """Record that a run was stopped, with its last reported metric."""
    while True:
        lease, _ = await lease_of(request, call, stores, settings.stale_s)
        e = lease.experiment
        if (e.status, e.attempt, e.fence) == ("stopped", request.attempt, request.fence):
            return RunStopped(experiment_id=e.experiment_id, status=e.status)
        check_open(e, request.attempt, request.fence)
        reason, value = e.stop_reason or "stopped", last_value(e.last_metric, e.tick_source)
        ending = Ending(e, "stopped", {"error": reason, "val_bpb": value}, reason=reason)
        if await stores.experiments.end(ending):
            return RunStopped(experiment_id=e.experiment_id, status="stopped")
