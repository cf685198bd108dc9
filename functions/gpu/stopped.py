"""gpu::stopped ends an experiment that its worker has stopped by the lab's order."""

from __future__ import annotations

from functions.contract import Call, Response, function
from functions.gpu._lease import OfLease
from functions.gpu._stores import Stores
from functions.rules.access import check_own_gpu
from functions.rules.keeps.reports import check_open
from functions.rules.stopping.ticks import last_value
from state.change import Change
from state.decisions import Ending


class RunStopped(Response):
    experiment_id: str
    status: str


@function("gpu::stopped", role="worker", writes=True, keeps_answer=False)
async def stopped(request: OfLease, call: Call, stores: Stores) -> RunStopped:
    """Record that a run was stopped, with its last reported metric."""

    async def decide(change: Change) -> RunStopped:
        run = await stores.experiments.run_facts(change, request.experiment_id, request.attempt)
        e, gpu_id = run.experiment, run.gpu_id
        gpu = await stores.pool.find(gpu_id) if gpu_id else None
        check_own_gpu(call.caller, gpu, gpu_id or f"the GPU of {e.experiment_id}")
        if (e.status, e.attempt, e.fence) == ("stopped", request.attempt, request.fence):
            return change.idle(RunStopped(experiment_id=e.experiment_id, status=e.status))
        check_open(e, request.attempt, request.fence)
        reason, value = e.stop_reason or "stopped", last_value(e.last_metric, e.tick_source)
        ending = Ending(e, "stopped", {"error": reason, "val_bpb": value}, reason=reason)
        await stores.experiments.finish(change, run, ending)
        return RunStopped(experiment_id=e.experiment_id, status="stopped")

    return await stores.experiments.judging(request.experiment_id, decide)
