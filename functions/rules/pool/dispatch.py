"""Which waiting experiment gets which idle GPU."""

from __future__ import annotations

from collections.abc import Sequence

from functions.rules.pool.health import is_stale
from state.leases import Line
from state.records import Experiment, Gpu


def pairs(waiting: Sequence[Experiment], idle: Sequence[Gpu]) -> list[tuple[Experiment, str]]:
    """Matches for the first of those that wait, as many as there are idle GPUs; the longest idle GPU goes first.

    Only the place in the queue decides which experiments are matched; among these, a GPU is left for the experiment
    that is pinned to it. A retest gets a GPU of the class that its experiment ran on: values of other classes are not
    comparable.
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


def lendable(line: Line, stale_s: float) -> list[Gpu]:
    """Idle GPUs that a dispatcher lends, longest idle first.

    A GPU with an owner has no queue of ours: its worker asks for its runs (`http`), or for each lease itself.
    """
    return [
        g
        for g in line.idle
        if (g.owner is None or g.transport == "http") and not is_stale(g.heartbeat_at, line.now, stale_s)
    ]
