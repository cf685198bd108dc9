"""The result of a run that has ended: its metrics, why it failed, or the order that ended it."""

from __future__ import annotations

import contextlib
import errno
import json
import math
from collections.abc import Mapping
from pathlib import Path

from functions.formats.failure_kind import classify_failure
from functions.formats.metrics_block import failure_tail, is_metric_name, newest_lines
from functions.formats.printed_score import nearest
from workers.attempt.child import EndedRun
from workers.attempt.job import FailedTraining, HaltedRun, TrainedRun, TrainingResult
from workers.attempt.worktree import Checkout, read_inside


def outcome(
    ended: EndedRun, built: Checkout, metric: str, gpu_class: str, *, is_scored: bool = False
) -> TrainingResult:
    """A run that exited with 0 and a finite metric is trained, even if it was told to stop, or hung afterwards.

    `is_scored`: the tag's evaluator measures the metric afterwards. Then the script need not print it, and a stopped
    run has none.
    """
    if ended.cause == "lost":
        return HaltedRun("lost")
    if (harm := built.harm()) is not None:
        return FailedTraining("evaluator", f"{harm}\n{failure_tail(ended.log)}".rstrip())
    printed = ended.printed.metrics
    if metric not in printed:
        written = _results_file(built.path)
        printed = written if metric in written else printed or written
    value = printed.get(metric, math.nan)
    is_whole = math.isfinite(value) or (is_scored and metric not in printed)
    ends_here = ("timeout", "excess", "stop") if is_scored else ("timeout", "excess")
    has_ended = ended.returncode == 0 or ended.cause == "hung"
    if has_ended and ended.cause not in ends_here and is_whole:
        return TrainedRun(
            metrics={name: number for name, number in printed.items() if math.isfinite(number)},
            evaluator_hash=built.evaluator_hash,
            gpu_class=gpu_class,
            log_tail=newest_lines(ended.log),
            metric=value,
            reported=value if is_scored and math.isfinite(value) else None,
            time=ended.time,
            hung=ended.cause == "hung",
        )
    if ended.cause == "stop":
        return HaltedRun("stop")
    return _failed(ended, printed, metric)


def not_started(error: OSError) -> FailedTraining:
    """The failure of a run whose process could not be started; it is not the experiment's fault."""
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    remedy = (
        "make room on the worker's disk"
        if is_full
        else "check --command, --python and --isolation of the worker"
    )
    return FailedTraining("infra", f"the run could not be started: {error}; {remedy}")


def _failed(ended: EndedRun, printed: Mapping[str, float], metric: str) -> FailedTraining:
    wanted = {metric: printed[metric]} if metric in printed else {}
    kind = classify_failure(ended.log, ended.returncode, timed_out=ended.cause == "timeout", metrics=wanted)
    if ended.cause == "excess" and ended.excess is not None:
        kind, reason = ended.excess.kind, ended.excess.reason
    elif ended.cause == "timeout":
        reason = "still running at its time limit"
        if metric in printed:
            reason += (
                f", after it had printed {metric} {printed[metric]:g}; a run that hangs is ended soon, and"
                " its score counts, where that is the last thing it prints, behind a line `---`"
            )
    elif ended.returncode is not None and ended.returncode < 0:
        reason = f"ended by signal {-ended.returncode}"
    elif ended.returncode != 0:
        reason = f"exited with {ended.returncode}"
    elif metric in printed:
        reason = f"{metric} is {printed[metric]}"
    elif printed:
        reason = f"{metric} is not among the metrics printed: {', '.join(sorted(printed)[:20])}"
        reason += nearest(ended.printed, metric, ended.log)
    else:
        reason = f"exited with 0 but printed no line `{metric}: NUMBER`"
        reason += nearest(ended.printed, metric, ended.log)
    return FailedTraining(kind, f"{reason}\n{failure_tail(ended.log)}".rstrip())


def _results_file(tree: Path) -> dict[str, float]:
    """The numbers in `results.json` beside the script, for scripts that print no metrics block."""
    content = read_inside(tree, "results.json")
    if content is None:
        return {}
    try:
        found: object = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    numbers: dict[str, float] = {}
    for name, value in list(found.items())[:256]:
        if is_metric_name(name.lower()) and isinstance(value, int | float) and not isinstance(value, bool):
            with contextlib.suppress(OverflowError):
                numbers[name.lower()] = float(value)
    return numbers
