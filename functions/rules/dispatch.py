"""Which waiting experiment gets which idle GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from state.records import Experiment, Gpu


def pairs(waiting: Sequence[Experiment], idle: Sequence[Gpu]) -> list[tuple[Experiment, str]]:
    """Matches for as many of the first as there are idle GPUs: one pinned gets its own, the others the longest idle.

    Only the place in the queue decides who is matched; a GPU is left for the one pinned to it where both find one.
    """
    free = {gpu.gpu_id: None for gpu in idle}
    pinned: dict[str, Experiment] = {}
    others: list[Experiment] = []
    for e in waiting:
        if len(pinned) + len(others) == len(free):
            break
        if e.pinned_gpu is None:
            others.append(e)
        elif e.pinned_gpu in free:
            pinned.setdefault(e.pinned_gpu, e)
    rest = [gpu_id for gpu_id in free if gpu_id not in pinned]
    return [*((e, gpu_id) for gpu_id, e in pinned.items()), *zip(others, rest, strict=False)]


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
