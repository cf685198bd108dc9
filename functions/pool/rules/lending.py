"""Matching GPUs with experiments, for agents that acquire one and for the wait queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from functions.experiments.rules.reports import REGISTER, already_finished
from functions.kernel.rules.access import Caller, check_own, check_own_gpu, owns_gpu
from functions.pool.rules.health import is_stale
from functions.runs.rules.time_limits import has_time
from state.leases import GpuRequest, Line
from state.records import OPEN, Experiment, Gpu
from state.refusals import CONFINED_ONLY


def candidates(
    caller: Caller, wanted: GpuRequest, *, labels: Mapping[str, str], min_vram_mb: float, stale_s: float
) -> list[str]:
    """GPUs that may be lent to the experiment, best first. None while a worker has it or will have it.

    A worker gets only GPUs that it registered, for its own experiments and those without an owner. An agent's own
    GPUs are for it alone. It gets them before the lab's, which cost the tag's budget.

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
    return [
        g.gpu_id
        for g in (*own, *others)
        if may_run(e, g)
        and not is_stale(g.heartbeat_at, wanted.now, stale_s)
        and g.vram_mb >= min_vram_mb
        and all(g.labels.get(name) == value for name, value in labels.items())
    ]


def why_none(wanted: GpuRequest) -> str:
    if wanted.experiment.status != "registered":
        return f"the experiment is {wanted.experiment.status}: a worker has it or will have it"
    if wanted.registered == 0:
        return "no GPU is registered: start a worker with ./nightjar worker --repo PATH"
    if not has_time(wanted.tag):
        return f"the budget of {wanted.tag.name} has no GPU seconds left: POST /api/tag/budget raises it"
    if wanted.experiment.is_confined and not any(gpu.is_confined for gpu in wanted.idle):
        return f"no idle GPU is a confined slot: {CONFINED_ONLY}"
    return "no idle, healthy GPU fits"


def pairs(waiting: Sequence[Experiment], idle: Sequence[Gpu]) -> list[tuple[Experiment, str]]:
    """Matches the first waiting experiments with idle GPUs; the longest idle GPU goes first.

    The place in the queue alone decides which experiments are matched. Among these, a GPU is left for the experiment
    that is pinned to it. A retest needs a GPU of its experiment's class, because other values are not comparable.
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
    """Whether the result would be comparable, and a hidden split stay hidden.

    A retest needs its experiment's class of GPU. A run that was disturbed needs another slot.
    """
    is_comparable = e.retest_of is None or e.gpu_class in (None, gpu.gpu_name)
    return is_comparable and e.avoided_gpu != gpu.gpu_id and (gpu.is_confined or not e.is_confined)


def with_a_slot(e: Experiment, gpus: Sequence[Gpu]) -> Experiment:
    """The experiment, which avoids a slot only while another one of that class serves the same runs."""
    avoided = next((gpu for gpu in gpus if gpu.gpu_id == e.avoided_gpu), None)
    is_alone = avoided is not None and not any(
        gpu.status in ("idle", "training")
        and gpu.gpu_id != avoided.gpu_id
        and (gpu.gpu_name, gpu.owner, gpu.of_agent) == (avoided.gpu_name, avoided.owner, avoided.of_agent)
        and may_run(e, gpu)
        for gpu in gpus
    )
    return e.model_copy(update={"avoided_gpu": None}) if is_alone or e.pinned_gpu else e


def lendable(line: Line, stale_s: float) -> list[Gpu]:
    """Idle GPUs for the dispatcher, longest idle first; owned ones have no queue, since their worker asks itself."""
    return [
        g
        for g in line.idle
        if (g.owner is None or g.transport == "http") and not is_stale(g.heartbeat_at, line.now, stale_s)
    ]
