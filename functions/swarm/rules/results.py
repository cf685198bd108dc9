"""Results of a swarm's workers: how they are judged, and how their runs end.

Two signs are never mixed. `delta_bpb` is a value minus its worker's baseline: negative is better. `delta` is the gain
over the best before: positive is better.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from functions.experiments.rules.judging import (
    FailureReport,
    ResultReport,
    RunConditions,
    conditions_of,
    judge_failure,
    judge_run,
)
from functions.experiments.rules.verdict import Key
from functions.pool.rules.leases import Breaker
from functions.runs.rules.stopping import REASON
from functions.runs.rules.time_limits import base_value, with_extension
from state.decisions import Ending
from state.errors import Conflict, Invalid
from state.facts import Comparison, RunFacts
from state.policy import Policy, TickSource
from state.records import Experiment, Tag, TimeSpent

TIMEOUT = "TIMEOUT"
"""Error that published workers send for a run that took too long."""
RETURNED = "returned"
"""Error of a run that its worker's owner ended. The config returns to the queue."""
NO_CONSTANT = "no such constant"
"""Begin of the error if train.py lacks a constant of the config.

It is no evidence about the config, which does not return to the queue."""
GIVEN_BACK = "its worker's owner gave it back"
NO_OUTPUT = "it printed nothing"
BY_OPERATOR = "stopped by an operator"


@dataclass(frozen=True)
class Sent:
    val_bpb: float | None
    error: str | None
    duration_seconds: float
    cpu_seconds: float | None
    """None if not measured: published workers do not."""
    sent_delta_bpb: float | None
    """The worker's own delta; kept, never judged."""
    digest: str
    hung: bool = False


def check_comparison(before: Policy, after: Policy, tag: Tag) -> None:
    """Refuse another `compare_by` for a tag with results. Raises Conflict: the tag has results."""
    if tag.results:
        raise Conflict(
            f"{tag.results} runs of {tag.name!r} were compared by {before.compare_by}: they cannot be compared by"
            f" {after.compare_by} afterwards",
            hint="open another tag for that",
        )


def is_failure(sent: Sent) -> bool:
    """Whether a result is an error. Raises Invalid: it has neither a value nor an error."""
    if sent.error:
        return True
    if sent.val_bpb is None and sent.error is None:
        raise Invalid(
            "val_bpb is null", hint="a run without a value has an error: send its last lines as error"
        )
    return sent.val_bpb is None


def conditions(run: RunFacts) -> RunConditions:
    """The comparability of a swarm's run. Deltas need no GPU class: the worker's baseline contains it."""
    e = run.experiment
    gpu_class = e.gpu_type if run.policy.compare_by == "value" else None
    return conditions_of(Key(gpu_class, None, e.budget_s), run)


def judged(sent: Sent, run: RunFacts, under: RunConditions, beside: Comparison) -> Ending:
    """The verdict on a result with a value."""
    assert sent.val_bpb is not None
    value, delta = _measured(sent, run)
    by_value = run.policy.compare_by == "value"
    # at most the time since the hand-out, which includes lost networks
    wall_s = min(sent.duration_seconds, lasted_s(run.experiment, run.now))
    report = ResultReport(
        judged_value(sent, run),
        under.key,
        sent.digest,
        {"hung": True} if sent.hung else {},
        training_seconds=sent.duration_seconds,
        time=TimeSpent(wall_seconds=wall_s, cpu_seconds=sent.cpu_seconds),
    )
    ending = judge_run(report, run, under, beside)
    fields: dict[str, Any] = {
        **ending.fields,
        "val_bpb": value if by_value else sent.val_bpb,
        "by_value": by_value,
        "sent_delta_bpb": sent.sent_delta_bpb,
        "training_seconds": sent.duration_seconds,
    }
    if fields["over_budget"] or fields.get("guard"):
        return ending._replace(fields=fields)
    fields["delta_bpb"] = delta
    return with_extension(ending._replace(fields=fields), sent.val_bpb)


def judged_value(sent: Sent, run: RunFacts) -> float:
    """The judged number: the delta or the value, by the policy's `compare_by`."""
    value, delta = _measured(sent, run)
    return value if run.policy.compare_by == "value" else delta


def _measured(sent: Sent, run: RunFacts) -> tuple[float, float]:
    """The value at the end of the normal budget, and its difference from the worker's baseline."""
    e = run.experiment
    assert sent.val_bpb is not None
    assert e.baseline_bpb is not None
    own = base_value(e)
    value = sent.val_bpb if own is None else own
    return value, value - e.baseline_bpb


def failed(sent: Sent, run: RunFacts, beside: Comparison) -> Ending:
    """The end of a run without a value. It never trips the circuit breaker of a GPU."""
    kind = "timeout" if sent.error == TIMEOUT else "other"
    failure = FailureReport(kind, sent.error or NO_OUTPUT, sent.digest, sent.duration_seconds)
    return judge_failure(failure, run, beside, Breaker(1, 0.0))


def stopped(e: Experiment, at: float, reason: str | None = None) -> Ending:
    """The end of a run that is stopped for its rank, by an operator or with its tag. `at` is Redis' clock."""
    why = reason or e.stop_reason or BY_OPERATOR
    spent_s = lasted_s(e, at)
    return Ending(
        e, "stopped", {"error": why, "training_seconds": spent_s}, reason=why, training_seconds=spent_s
    )


def told_reason(e: Experiment) -> str:
    """The stop reason for a worker, without an operator's own words.

    Published clients read the first number beside the metric's name as the result."""
    return REASON if REASON in (e.stop_reason, e.error) else BY_OPERATOR


def lasted_s(e: Experiment, at: float) -> float:
    return max(at - (e.started_at or at), 0.0)


def ranked_value(e: Experiment, metric: float, source: TickSource, policy: Policy) -> float:
    """The number by which a report is ranked: like the judged one, but a loss has no baseline in its unit."""
    by_delta = policy.compare_by == "delta" and e.baseline_bpb is not None and source == "report"
    return metric - (e.baseline_bpb or 0.0) if by_delta else metric
