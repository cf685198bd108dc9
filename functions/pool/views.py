"""GPUs in answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, get_args

from functions.pool.rules.health import effective_status
from state.records import Gpu, GpuState, GpuStatus, stamp

WorkerView = dict[str, Any]
STATUSES: tuple[GpuStatus, ...] = get_args(GpuStatus)
TIMES = (
    "registered_at",
    "heartbeat_at",
    "idle_since",
    "leased_at",
    "lease_expires_at",
    "deadline",
    "sampled_at",
    "tripped_until",
)


def worker_view(gpu: Gpu, now: float, stale_s: float) -> WorkerView:
    """The GPU in answers. Silence is taken into account, whether or not the sweep has run."""
    shown = gpu.model_dump()
    for name in TIMES:
        if shown[name] is not None:
            shown[name] = stamp(shown[name])
    shown["status"] = effective_status(gpu, now, stale_s)
    shown["experiment_id"] = shown["current_experiment_id"] = gpu.holder
    shown |= {"id": gpu.gpu_id, "name": f"gpu-{gpu.gpu_index}"}
    shown["breaker"] = "open" if gpu.tripped else "half-open" if gpu.trips else "closed"
    shown["last_heartbeat"] = shown["heartbeat_at"]
    return shown


def pool_counts(gpus: Sequence[GpuState], now: float, stale_s: float) -> dict[str, int]:
    """Number of GPUs, in all and by status."""
    states = Counter(effective_status(gpu, now, stale_s) for gpu in gpus)
    return {"total": len(gpus)} | {status: states[status] for status in STATUSES}
