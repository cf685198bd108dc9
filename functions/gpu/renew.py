"""gpu::renew renews a running attempt's lease with its newest report and log, and answers an order."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from functions.contract import Call, Response, function
from functions.gpu._lease import OfLease, ranked
from functions.gpu._stores import Stores
from functions.lanes import Extension, Order
from functions.rules.access import check_own_gpu
from functions.rules.stopping.ticks import MOST_PROGRESS, bucket_of, is_within_budget
from state.policy import TickSource
from state.settings import Settings


class RenewRun(OfLease):
    metric: float | None = Field(None, description="what the script has reported last", examples=[1.07])
    progress: Annotated[float, Field(ge=0, le=MOST_PROGRESS)] | None = Field(
        None, description="how far it was then, of its budget", examples=[0.25]
    )
    tick_source: TickSource = Field(
        "report",
        description="where metric and progress come from: its script has reported them, or printed them; see"
        " pool::next",
    )
    log: Annotated[str, Field(max_length=65536)] | None = Field(
        None, description="the newest lines of its log", examples=["step 100 loss 2.3"]
    )

    @model_validator(mode="after")
    def _whole(self) -> RenewRun:
        if (self.metric is None) != (self.progress is None):
            raise ValueError("metric and progress go together")
        return self


class RunRenewed(Response):
    order: Order
    """continue, stop (end the run, then gpu::stopped), or lost: end it, its lease is another's."""
    extra_s: float | None = None
    """Additional seconds beyond its first time limit, for one of the best runs."""
    budget_s: float | None = None
    """Seconds that it may train in total, with the extension."""


@function("gpu::renew", role="worker", writes=True, keeps_answer=False)
async def renew(request: RenewRun, call: Call, stores: Stores, settings: Settings) -> RunRenewed:
    """Renew a run's lease, store its report and log, and answer the lab's order."""
    experiments = stores.experiments
    e, gpu_id = await experiments.of_attempt(request.experiment_id, request.attempt)
    name = gpu_id or f"the GPU of {e.experiment_id}"
    tick = None if request.metric is None or request.progress is None else (request.metric, request.progress)
    order = await experiments.renew(
        e.experiment_id,
        name,
        request.fence,
        settings.stale_s,
        tick,
        is_base=tick is not None and is_within_budget(tick[1]),
        source=request.tick_source,
        check=lambda gpu: check_own_gpu(call.caller, gpu, name),
    )
    if request.log is not None and order != "lost":
        await experiments.keep_log(e, request.log)
    bucket = None if tick is None else bucket_of(tick[1])
    if tick is None or bucket is None or order != "continue":
        return RunRenewed(order=order)
    told = await ranked(e, tick, bucket, experiments, request.tick_source)
    if isinstance(told, Extension):
        return RunRenewed(order="continue", extra_s=told.extra_s, budget_s=told.budget_s)
    return RunRenewed(order=told)
