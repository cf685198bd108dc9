"""Which waiting experiment gets which idle GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from state.records import Experiment, Gpu


def pairs(waiting: Sequence[Experiment], idle: Sequence[Gpu]) -> list[tuple[Experiment, str]]:
    """Matches for as many of the first as there are idle GPUs: one pinned gets its own, the others the longest idle.

    Only the place in the queue decides who is matched; a GPU is left for the one pinned to it where both find one.
    A retest gets a GPU of the class that its experiment ran on: on another its value would say nothing.
    """
    free = {gpu.gpu_id: gpu for gpu in idle}
    pinned: dict[str, Experiment] = {}
    others: list[Experiment] = []
    for e in waiting:
        if len(pinned) + len(others) == len(free):
            break
        if e.pinned_gpu is None:
            if any(may_run(e, gpu) for gpu in idle):
                others.append(e)
        elif e.pinned_gpu in free:
            pinned.setdefault(e.pinned_gpu, e)
    rest = [gpu for gpu_id, gpu in free.items() if gpu_id not in pinned]
    found = [(e, gpu_id) for gpu_id, e in pinned.items()]
    for e in others:
        fit = next((gpu for gpu in rest if may_run(e, gpu)), None)
        if fit is not None:
            rest.remove(fit)
            found.append((e, fit.gpu_id))
    return found


def may_run(e: Experiment, gpu: Gpu) -> bool:
    """Whether the result would be comparable."""
    return e.retest_of is None or e.gpu_class in (None, gpu.gpu_name)


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
