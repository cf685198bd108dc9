"""Whether a GPU is healthy, and what follows for its place in the pool."""

from __future__ import annotations

from state.records import Gpu, GpuStatus


def is_stale(heartbeat_at: float, now: float, stale_s: float) -> bool:
    """Nobody has heard of it for `stale_s` seconds."""
    return now - heartbeat_at >= stale_s


def effective_status(gpu: Gpu, now: float, stale_s: float) -> GpuStatus:
    """The status that a reader should see before the sweep has written it."""
    return "offline" if is_stale(gpu.heartbeat_at, now, stale_s) else gpu.status


def complaint(gpu: Gpu, now: float, *, stale_s: float, temperature_limit_c: float) -> str | None:
    """What is wrong with the newest sample of a GPU; None where nothing is."""
    health = gpu.health or {}
    if gpu.sampled_at is None:
        return None  # registered by hand, without samples: its heartbeat has to be enough
    if now - gpu.sampled_at >= stale_s:
        return f"no sample for {stale_s:g} s"
    if error := health.get("error"):
        return str(error)
    temperature = health.get("temperature_c")
    if temperature is not None and temperature > temperature_limit_c:
        return f"{temperature:g} °C is over the limit of {temperature_limit_c:g} °C"
    if errors := health.get("ecc"):
        return f"{errors} uncorrected memory errors"
    return None
