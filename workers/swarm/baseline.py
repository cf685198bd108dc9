"""What the owner's train.py scores unchanged on this machine: every result is compared with it."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from functions.lanes import Failed, Trained
from functions.process.joined import Baseline
from state.errors import Invalid
from workers.swarm.leaving import Leaving
from workers.swarm.project import Project
from workers.swarm.runs import Runs, Unwatched, a_job, seed_of

ASSUMED_S = 300.0
"""The budget of a script that names none, where the swarm has not said its own."""


async def measured(
    project: Project,
    runs: Runs,
    count: int,
    base_s: float | None,
    leaving: Leaving,
    say: Callable[[str], None],
) -> Baseline | None:
    """Run the unchanged script `count` times; None where its owner wants to leave meanwhile.

    Each run has the swarm's base budget, where that is known and the script takes one. The first has the script's own
    seed, the others have seeds of their own: repeats of a config have them, too.

    Raises:
        Invalid: a run gives no number; with the end of its log.
    """
    own_s = project.script.own_budget_s
    budget_s = own_s if own_s is None else base_s or own_s
    values: list[float] = []
    for nth in range(1, count + 1):
        if not await runs.ready():
            return None
        name = f"baseline-{nth}"
        say(
            f"baseline {nth} of {count}: the unchanged {project.name}"
            + (f", {budget_s:g} s" if budget_s else "")
        )
        job = a_job(name, {}, budget_s or base_s or ASSUMED_S, None if nth == 1 else seed_of(name))
        result, seconds = await runs.of(job, Unwatched(leaving))
        match result:
            case Trained(metric=value):
                values.append(value)
                say(f"  val_bpb {value:.6f} in {seconds:.0f} s")
            case Failed(kind=kind, error=error):
                raise Invalid(
                    f"the baseline cannot be measured: {project.name} gave no number ({kind}). {error}",
                    hint=f"run `python {project.name}` by hand until it prints `val_bpb: NUMBER`, or name the number"
                    " yourself: --skip-baseline --baseline-bpb X",
                )
            case _:
                return None
    sigma = statistics.stdev(values) if len(values) > 1 else None
    return Baseline(
        val_bpb=statistics.fmean(values),
        sigma=sigma,
        runs=count,
        budget_s=budget_s,
        project=project.digest,
    )


def shown(baseline: Baseline) -> str:
    """A baseline for people."""
    if not baseline.runs:
        return f"baseline: val_bpb {baseline.val_bpb:g}, as you say"
    spread = "" if baseline.sigma is None else f", sigma {baseline.sigma:.6f}"
    each = f" of {baseline.budget_s:g} s" if baseline.budget_s is not None else ""
    runs = f"{baseline.runs} run{'' if baseline.runs == 1 else 's'}"
    return f"baseline: val_bpb {baseline.val_bpb:.6f}{spread} ({runs}{each})"
