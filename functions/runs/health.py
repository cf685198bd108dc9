"""Health and load of a GPU."""

from __future__ import annotations

from pydantic import Field

from functions.kernel.contract import Call, Every, Http, Request, Response, function
from functions.pool.rules.health import WorkerView, complaint, is_stale, judge_sample, worker_view
from state.ids import GpuId
from state.pool import HISTORY_EVERY_S, MEASURED, Pool
from state.records import stamp
from state.settings import Settings


class OfGpu(Request):
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
async def health(request: OfGpu, call: Call, pool: Pool, settings: Settings) -> Health:
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


class OneGpu(Response):
    worker: WorkerView


@function("gpu::get", role=("viewer", "worker"))
async def get(request: OfGpu, pool: Pool, settings: Settings) -> OneGpu:
    """One GPU or CPU slot of the pool: its status, its lease and its health."""
    found = await pool.holding(request.gpu_id)
    return OneGpu(worker=worker_view(found.gpu, found.now, settings.stale_s))


class ReadGpuHistory(OfGpu):
    hours: float = Field(6.0, gt=0, le=24, description="so far back")


class GpuHistory(Response):
    """Samples as lists of equal length, oldest first; null: not measured."""

    gpu_id: str
    environment: list[str]
    """The Python that trains there, and its packages, as its worker found them when it started; empty: not known."""
    every_s: float
    """Least seconds between two samples. A longer gap means that its worker was silent."""
    at: list[float]
    """Seconds since 1970."""
    utilization_percent: list[float | None]
    memory_used_mb: list[float | None]
    temperature_c: list[float | None]
    memory_total_mb: float | None


@function("gpu::history", role="viewer")
async def history(request: ReadGpuHistory, pool: Pool) -> GpuHistory:
    """Utilization, memory and temperature of a GPU or CPU slot over the last hours, one sample in 2 minutes."""
    gpu, environment, samples = await pool.history(request.gpu_id, request.hours * 3600)
    at, *columns = zip(*samples, strict=True) if samples else ((), *((),) * len(MEASURED))
    measured = {name: [*values] for name, values in zip(MEASURED, columns, strict=True)}
    total = (gpu.health or {}).get("memory_total_mb")
    return GpuHistory.model_validate(
        {
            "gpu_id": gpu.gpu_id,
            "environment": environment,
            "every_s": HISTORY_EVERY_S,
            "at": [*at],
            "memory_total_mb": total if isinstance(total, int | float) else None,
            **measured,
        }
    )
