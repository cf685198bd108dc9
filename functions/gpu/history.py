"""gpu::history shows the load of a GPU over the last hours."""

from __future__ import annotations

from pydantic import Field

from functions.contract import Request, Response, function
from state.ids import GpuId
from state.pool import HISTORY_EVERY_S, MEASURED, Pool


class ReadGpuHistory(Request):
    gpu_id: GpuId
    hours: float = Field(6.0, gt=0, le=24, description="so far back")


class GpuHistory(Response):
    """Samples as lists of equal length, oldest first; null: not measured."""

    gpu_id: str
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
    gpu, samples = await pool.history(request.gpu_id, request.hours * 3600)
    at, *columns = zip(*samples, strict=True) if samples else ((), *((),) * len(MEASURED))
    measured = {name: [*values] for name, values in zip(MEASURED, columns, strict=True)}
    total = (gpu.health or {}).get("memory_total_mb")
    return GpuHistory.model_validate(
        {
            "gpu_id": gpu.gpu_id,
            "every_s": HISTORY_EVERY_S,
            "at": [*at],
            "memory_total_mb": total if isinstance(total, int | float) else None,
            **measured,
        }
    )
