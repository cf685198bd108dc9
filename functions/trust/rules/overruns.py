"""Whether a run trained longer than its budget, compared with the baseline's time or the first run's."""

from __future__ import annotations

from state.records import Experiment, ReferenceTime, TimeSpent

MORE_S = 10.0
"""Seconds over its budget that every run may take: short runs differ in their start."""
HINT = (
    "Train for as long as the unchanged code does. An operator gives all runs more time with the policy's"
    " budgets.base_s, or a larger factor with budgets.overrun."
)
ALL_OVER = "its further runs trained for longer than their budget"
"""Reason of a demotion after retests that were all over their budget."""


def is_timed(e: Experiment) -> bool:
    """Whether a worker of the lab or of a swarm trains it."""
    return e.attempt > 0 or e.worker_id is not None


def overrun(e: Experiment, time: TimeSpent, reference: ReferenceTime, factor: float) -> str | None:
    """Why a run is over its budget; None: it is not.

    Its time is compared with the usual time of its budget, without the seconds that stopping granted. On a CPU slot
    CPU seconds must be over, too: a busy machine makes no run guilty.
    """

    def is_over(spent_s: float, usual_s: float) -> bool:
        more = spent_s - (e.extended_s or 0.0) - usual_s
        return more > (factor - 1) * usual_s and more > MORE_S

    usual = usual_time(e, reference)
    if not is_over(time.wall_seconds, usual.wall_seconds):
        return None
    cpu = ""
    if is_on_cpu(e):
        if time.cpu_seconds is None or usual.cpu_seconds is None:
            return None
        if not is_over(time.cpu_seconds, usual.cpu_seconds):
            return None
        cpu = f", and used {time.cpu_seconds:.1f} CPU seconds against {usual.cpu_seconds:.1f}"
    whose = "the baseline" if reference.baseline else "the first run on its class of GPU with its budget"
    is_other = usual.wall_seconds != reference.wall_seconds
    other = f" ({usual.wall_seconds:.1f} s with a budget of {e.budget_s:g} s)" if is_other else ""
    return (
        f"over its budget: it trained {time.wall_seconds:.1f} s where {reference.experiment_id}, {whose}, trained"
        f" {reference.wall_seconds:.1f} s{other}{cpu}; {factor:g} times as much, and {MORE_S:g} s more, are allowed"
    )


def usual_time(e: Experiment, reference: ReferenceTime) -> TimeSpent:
    """Usual time of a run with this budget, from the reference run.

    The baseline's training time scales with the budget; its start-up does not. A first run may have been short for
    any reason, so at least the budget is allowed.
    """
    if e.budget_s is None:
        return reference
    wall_s = reference.wall_seconds
    if reference.baseline:
        own_s = reference.budget_s or e.budget_s
        trained_s = min(wall_s, own_s)
        usual_s = trained_s * e.budget_s / own_s + wall_s - trained_s
    else:
        usual_s = max(wall_s, e.budget_s)
    cpu_s = reference.cpu_seconds
    return TimeSpent(wall_seconds=usual_s, cpu_seconds=None if cpu_s is None else cpu_s * usual_s / wall_s)


def is_on_cpu(e: Experiment) -> bool:
    return (e.gpu_type or e.gpu_class or "").lower().startswith("cpu")


def reference_after(e: Experiment, told: TimeSpent, before: ReferenceTime | None) -> ReferenceTime | None:
    """The reference time that this run sets (the baseline, or before it the first timed run); None: it stays."""
    is_baseline = e.baseline and e.retest_of is None
    if not is_timed(e) or (before is not None and not is_baseline):
        return None
    granted_s = e.extended_s or 0.0 if e.used_extension else 0.0
    if told.wall_seconds <= granted_s or (is_on_cpu(e) and told.cpu_seconds is None):
        return None
    return ReferenceTime(
        budget_s=e.budget_s,
        wall_seconds=told.wall_seconds - granted_s,
        cpu_seconds=None if told.cpu_seconds is None else max(told.cpu_seconds - granted_s, 0.0),
        experiment_id=e.experiment_id,
        baseline=is_baseline,
    )
