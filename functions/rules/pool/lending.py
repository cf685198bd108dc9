"""Which GPUs may be lent to an experiment that asks for one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from functions.rules.access import Caller, check_own, check_own_gpu, owns_gpu
from functions.rules.ended import REGISTER, already_finished
from functions.rules.pool.dispatch import may_run
from functions.rules.pool.health import is_stale
from functions.rules.time_limits import has_time
from state.leases import Wanted
from state.records import OPEN, Gpu


def candidates(
    caller: Caller, wanted: Wanted, *, labels: Mapping[str, str], min_vram_mb: float, stale_s: float
) -> list[str]:
    """GPUs that may be lent to the experiment, best first; none while a worker has it, or will have it.

    A worker is lent only GPUs that it registered, and only for its own experiments and those without an owner. An
    agent's own GPUs are lent to no other caller, and to it before any of the lab's, which cost the tag's budget.

    Raises:
        Forbidden: the experiment, or the GPU that it holds, is another's. Conflict: the experiment is finished.
    """
    e, held, is_worker = wanted.experiment, wanted.held, caller.role == "worker"
    check_own(caller, e.owner, e.experiment_id)
    if e.status not in OPEN:
        raise already_finished(e, REGISTER)
    if held is not None and (is_worker or held.of_agent):
        check_own_gpu(caller, held, held.gpu_id)
    if e.status != "registered":
        return []
    own = [] if caller.may_do_all else [g for g in wanted.idle if owns_gpu(caller, g)]
    others = (
        []
        if is_worker or not has_time(wanted.tag)
        else [g for g in wanted.idle if not g.of_agent and g not in own]
    )
    idle = [g for g in (*own, *others) if may_run(e, g)]
    return suitable(idle, now=wanted.now, stale_s=stale_s, labels=labels, min_vram_mb=min_vram_mb)


def suitable(
    idle: Sequence[Gpu], *, now: float, stale_s: float, labels: Mapping[str, str], min_vram_mb: float
) -> list[str]:
    """Idle GPUs that are fresh, large enough and carry the labels, in the order given."""
    return [
        gpu.gpu_id
        for gpu in idle
        if not is_stale(gpu.heartbeat_at, now, stale_s)
        and gpu.vram_mb >= min_vram_mb
        and all(gpu.labels.get(name) == value for name, value in labels.items())
    ]


def why_none(wanted: Wanted) -> str:
    """Why no GPU was lent."""
    if wanted.experiment.status != "registered":
        return f"the experiment is {wanted.experiment.status}: a worker has it or will have it"
    if wanted.registered == 0:
        return "no GPU is registered: start a worker with ./nightjar worker --repo PATH"
    if not has_time(wanted.tag):
        return f"the budget of {wanted.tag.name} has no GPU seconds left: POST /api/tag/budget raises it"
    return "no idle, healthy GPU fits"
