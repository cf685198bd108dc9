"""gpu::health judges the newest sample of a GPU: what is sick is not lent."""

from __future__ import annotations

from functions.contract import Call, Every, Http, Request, Response, function
from functions.rules.pool.health import complaint, is_stale, judge_sample
from state.ids import GpuId
from state.pool import Pool
from state.records import stamp
from state.settings import Settings


class ReadHealth(Request):
    gpu_id: GpuId


class Health(Response):
    gpu_id: str
    temperature_c: float | None = None
    memory_used_mb: float | None = None
    memory_total_mb: float | None = None
    utilization_percent: float | None = None
    power_w: float | None = None
    throttle: str | None = None
    ecc: int | None = None
    xid: int | None = None
    disk_free_mb: float | None = None
    sampled_at: str | None = None
    error: str | None = None


@function(
    "gpu::health",
    Http("POST", "/api/gpu/health"),
    Http("GET", "/api/gpu/{gpu_id}/health"),
    Every("health_s", each="gpu"),
    role="viewer",
)
async def health(request: ReadHealth, call: Call, pool: Pool, settings: Settings) -> Health:
    """The newest sample that a GPU's keeper took; fired by the clock, it also takes a sick GPU out of the pool."""
    found = await pool.holding(request.gpu_id)
    gpu = found.gpu
    if gpu.sampled_at is None:
        return Health(gpu_id=gpu.gpu_id, error="no sample yet: its worker sends one with each heartbeat")
    problem = complaint(gpu, found.now, stale_s=settings.stale_s)
    # While nothing at all is heard of it, it is offline: that says nothing about its health when it comes back.
    if call.trigger == "cron" and not is_stale(gpu.heartbeat_at, found.now, settings.stale_s):
        judged = judge_sample(gpu, problem)
        if judged is not None:
            await pool.flag(gpu.gpu_id, set_=judged.flags, clear=judged.cleared, reason=judged.reason)
    sample = {name: value for name, value in (gpu.health or {}).items() if name in Health.model_fields}
    return Health.model_validate(
        sample | {"gpu_id": gpu.gpu_id, "sampled_at": stamp(gpu.sampled_at), "error": problem}
    )
