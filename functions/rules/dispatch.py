"""Which waiting experiment gets which idle GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from state.records import Experiment, Gpu


def pairs(waiting: Sequence[Experiment], idle: Sequence[Gpu]) -> list[tuple[Experiment, str]]:
    """Matches in queue order: a pinned experiment waits for its own GPU, the others take the longest idle.

    A GPU that a waiting experiment is pinned to is left for it, whoever stands before it.
    """
    free = {gpu.gpu_id: None for gpu in idle}
    pinned = [e for e in waiting if e.pinned_gpu is not None]
    matched: list[tuple[Experiment, str]] = []
    for e in pinned:
        if e.pinned_gpu in free:
            matched.append((e, e.pinned_gpu))
            del free[e.pinned_gpu]
    others = (e for e in waiting if e.pinned_gpu is None)
    matched.extend(zip(others, list(free), strict=False))
    return matched


def suitable(
    idle: Sequence[Gpu], *, now: float, stale_s: float, labels: Mapping[str, str], min_vram_mb: float
) -> list[str]:
    """Idle GPUs that are fresh, large enough and carry the labels, longest idle first."""
    return [
        gpu.gpu_id
        for gpu in idle
        if now - gpu.heartbeat_at < stale_s
        and gpu.vram_mb >= min_vram_mb
        and all(gpu.labels.get(name) == value for name, value in labels.items())
    ]
