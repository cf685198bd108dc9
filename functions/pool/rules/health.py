"""Health of GPUs, and its consequences for the pool."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from state.records import Footprint, Gpu, GpuState, GpuStatus, stamp

TEMPERATURE_LIMIT_C = 90.0
"""A hotter GPU is unhealthy."""
GOOD_SAMPLES = 3
"""Good samples in a row that make a GPU healthy again."""
MEMORY_TOLERANCE_MB = 256.0
"""GPU memory that a run may leave in use."""
MIN_FREE_MB = 1024.0
"""Free disk without which a worker is unhealthy and starts no run."""


def is_stale(heartbeat_at: float, now: float, stale_s: float) -> bool:
    """Whether it has been silent for `stale_s` seconds or longer."""
    return now - heartbeat_at >= stale_s


def is_newly_silent(gpu: Gpu, now: float, stale_s: float) -> bool:
    """Whether a GPU has gone silent and is not yet marked offline."""
    return not gpu.offline and is_stale(gpu.heartbeat_at, now, stale_s)


def is_forgotten(gpu: Gpu, now: float, forget_s: float) -> bool:
    """Whether a GPU has been offline for so long that it is removed. A drained GPU never is."""
    return (
        gpu.offline and gpu.holder is None and not gpu.drained and is_stale(gpu.heartbeat_at, now, forget_s)
    )


def effective_status(gpu: GpuState, now: float, stale_s: float) -> GpuStatus:
    """The status with silence taken into account, before the sweep has written it."""
    return "offline" if is_stale(gpu.heartbeat_at, now, stale_s) else gpu.status


def is_memory_back(
    before: Footprint, now: Footprint, *, strangers: Container[int], tolerance_mb: float = MEMORY_TOLERANCE_MB
) -> bool:
    """Whether a GPU holds no more memory than before a run whose processes have all ended.

    If the driver lists processes, earlier ones and `strangers` do not count. Strangers are live processes that are
    not the run's. Without a list the total decides.
    """
    held_before, held_now = before.used_mb, now.used_mb
    if before.processes is not None and now.processes is not None:
        others = [mb for pid, mb in now.processes.items() if pid in before.processes or pid in strangers]
        held_before -= sum(before.processes.values())
        held_now -= sum(others)
    return held_now - held_before <= tolerance_mb


def stays_out(gpu: Gpu) -> bool:
    """Whether a GPU must not be lent, although it is free and its worker is alive."""
    return gpu.drained or gpu.unproven or gpu.sick is not None or gpu.tripped is not None


def complaint(gpu: Gpu, now: float, *, stale_s: float) -> str | None:
    """The problem in a GPU's newest sample; None: there is none."""
    health = gpu.health or {}
    if gpu.sampled_at is None:
        return None  # registered by hand, without samples: the heartbeat is enough
    if now - gpu.sampled_at >= stale_s:
        return f"no sample for {stale_s:g} s"
    if error := health.get("error"):
        return str(error)
    temperature = health.get("temperature_c")
    if temperature is not None and temperature > TEMPERATURE_LIMIT_C:
        return f"{temperature:g} °C is over the limit of {TEMPERATURE_LIMIT_C:g} °C"
    if errors := health.get("ecc"):
        return f"{errors} uncorrected memory errors"
    if xid := health.get("xid"):
        return f"Xid error {xid}"
    free = health.get("disk_free_mb")
    if free is not None and free < MIN_FREE_MB:
        return f"its disk has {free:.0f} MB free, under the least of {MIN_FREE_MB:g} MB"
    return None


@dataclass(frozen=True)
class FlagChange:
    """Changes of a GPU's flags after a sample."""

    reason: str
    flags: Mapping[str, Any]
    cleared: Sequence[str] = ()


def judge_sample(gpu: Gpu, problem: str | None) -> FlagChange | None:
    """Changes of a GPU's flags after its newest sample, with its problem or None; None: no change.

    A sick GPU gets no new lease. It is healthy again after `GOOD_SAMPLES` good samples in a row.
    """
    if problem is not None:
        return FlagChange(problem, {"sick": problem, "good_samples": 0})
    if gpu.sick is None:
        return None
    if gpu.good_samples + 1 < GOOD_SAMPLES:
        return FlagChange("a good sample", {"good_samples": gpu.good_samples + 1})
    return FlagChange("healthy again", {}, ("sick", "good_samples"))


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
