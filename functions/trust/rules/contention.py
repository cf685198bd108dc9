"""Contention: a run whose steps per second show that another program slowed it down runs again.

Contention is one-sided, so the reference is the fastest run, which no slow one can move. The steps per second of
undisturbed runs of the same code have a standard deviation of 4 % (bench/contention.py), so 20 % less is not noise. A
second program on the same core or GPU takes about a half.

Nothing shows that the first run of a baseline is slow. If a further run of its code is far faster, the first no
longer counts among its runs (`noise.run_again`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from functions.experiments.rules.judging import ResultReport, not_kept
from functions.trust.rules.noise import FAR
from functions.trust.rules.overruns import is_on_cpu
from state.decisions import Ending
from state.facts import Comparison, RunFacts
from state.records import Experiment, Pace

MOST = 2
"""Attempts of one run that are left out as disturbed. The next one is judged whatever its pace."""


def pace_of(e: Experiment) -> Pace | None:
    """Speeds of a run; None where no worker trained it, or it counts no steps."""
    seconds = e.training_seconds or e.wall_seconds
    if e.steps_per_s is None or seconds is None:
        return None
    return Pace(
        experiment_id=e.retest_of or e.experiment_id,
        steps=e.steps_per_s,
        tokens_m=e.total_tokens_m / seconds if e.total_tokens_m else None,
        mfu_percent=e.mfu_percent or None,
        cpu_seconds=e.cpu_seconds / seconds if e.cpu_seconds and is_on_cpu(e) else None,
    )


def why_disturbed(pace: Pace, same_code: Sequence[float], baseline: Pace | None) -> str | None:
    """Why a run was disturbed; None: it was not, or nothing shows it.

    `same_code` has the steps per second of other runs of its code. They decide alone, so slow code runs at most once
    more. Other code may be slow by itself. Compared with the baseline a run was disturbed only if all its speeds are
    far lower. A larger batch does as many tokens, a larger model has the same MFU, and on a CPU slot slow code gets
    as many CPU seconds a second as any.
    """
    if same_code:
        usual, whose = max(same_code), "another run of its code"
        is_far = pace.steps < FAR * usual
    elif baseline is not None:
        usual, whose = baseline.steps, f"{baseline.experiment_id}, the baseline,"
        is_far = all(share < FAR for share in _shares(pace, baseline))
    else:
        return None
    how = f"{pace.steps:.4g} steps a second, where {whose} made {usual:.4g}"
    return f"another program slowed it down: {how}; it runs again" if is_far else None


def _shares(pace: Pace, of: Pace) -> Iterator[float]:
    mine, theirs = pace.model_dump(exclude={"experiment_id"}), of.model_dump(exclude={"experiment_id"})
    return (mine[name] / theirs[name] for name in mine if mine[name] and theirs[name])


def with_contention(ending: Ending, report: ResultReport, run: RunFacts, beside: Comparison) -> Ending:
    """The ending of a run that counts steps. It is `queued` if the run was disturbed and is to run again.

    The flag stays at the end if a later attempt was far faster. If not, the code is slow, and nothing disturbed it.
    """
    e, first, of_baseline = run.experiment, run.first, beside.baseline_pace
    pace = pace_of(e.model_copy(update=ending.fields))
    if pace is None or e.attempt == 0 or (ending.status == "invalid" and not ending.fields["over_budget"]):
        return ending
    before = [float(text) for name, text in (run.attempts or {}).items() if name.endswith(":steps_per_s")]
    is_baseline = (first or e).baseline
    of_code = [pace_of(first) if first else None, of_baseline if is_baseline else None]
    why = why_disturbed(pace, [*before, *(one.steps for one in of_code if one)], of_baseline)
    if why is not None and len(before) < MOST and not e.stopping and e.fence > run.tag.stop_fence:
        answer = not_kept(report, run, beside.best, "queued").model_copy(
            update={"contended": True, "reason": why}
        )
        kept = {"val_bpb": report.value, "steps_per_s": pace.steps}
        return Ending(e, "queued", kept, answer, ending.report, why)
    if e.contended:
        told = {"contended": any(each < FAR * pace.steps for each in before)}
        ending = ending.with_answer(told)
    is_fastest = of_baseline is None or pace.steps > of_baseline.steps
    if is_baseline and is_fastest and ending.status != "invalid":
        fastest = {e.time_classes[2]: pace.model_dump_json()}
        return ending._replace(references={**ending.references, **fastest})
    return ending
