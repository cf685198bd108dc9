"""Time limits of runs, and runs that got more time than others."""

from __future__ import annotations

from functions.experiments.rules.judging import ResultReport
from functions.kernel.rules.access import Caller
from functions.runs.rules.ticks import is_within_budget
from state.decisions import Ending
from state.errors import Forbidden, Invalid
from state.policy import Policy
from state.records import Experiment, Tag

# -- Time limits of runs, by the policy and the remaining budget of their tag.

TIMEOUT = (
    "seconds after which it is ended, at most budgets.max_timeout_s of the policy; default: 2 x budget + 60"
)


def longest_s(policy: Policy) -> float:
    return policy.budgets.max_timeout_s or default_timeout_s(policy.budgets.base_s)


def default_timeout_s(budget_s: float) -> float:
    """Default timeout of a run with this budget, in seconds."""
    return 2 * budget_s + 60


def check_allowed(policy: Policy, **asked: float | None) -> None:
    """Raise Invalid for more seconds than a run of this tag may have, naming the most."""
    most = longest_s(policy)
    for name, seconds in asked.items():
        if seconds is not None and seconds > most:
            raise Invalid(
                f"{name} {seconds:g} is too long: a run of this tag is given at most {most:g} s",
                hint=f"leave {name} out, or name at most {most:g}; an operator allows more with the policy's"
                " budgets.max_timeout_s: POST /api/search/set-policy",
                fields={"code": "too_long", "field": name, "largest": most},
            )


def check_may_lengthen(caller: Caller, policy: Policy) -> None:
    """Raise Forbidden for an agent that opens a tag with longer runs than the defaults allow."""
    if caller.may_do_all:
        return
    usual, asked = Policy(), policy.budgets
    for what, unit, names, value, most in (
        ("extensions of", " s", "budgets.extend_s", asked.extend_s, usual.budgets.extend_s),
        (
            "a training time of",
            " times the baseline's",
            "budgets.overrun",
            asked.overrun,
            usual.budgets.overrun,
        ),
        (
            "runs of up to",
            " s",
            "budgets.base_s and budgets.max_timeout_s",
            longest_s(policy),
            longest_s(usual),
        ),
    ):
        if value > most:
            raise Forbidden(
                f"{what} {value:g}{unit}: only operators allow more than {most:g}{unit}, and"
                f" {caller.described}",
                hint=f"leave {names} out or lower, or ask an operator to open the tag",
                fields={"largest": most},
            )


def limits_again(first: Experiment, policy: Policy) -> tuple[float, float]:
    """Budget and time limit of one more run of this code: those of the first run.

    A budget that only its agent named is limited by the policy. Limits of a first run by the lab hold, even if the
    policy has changed.
    """
    most = longest_s(policy)
    run_s = first.budget_s or min(first.budget_seconds or policy.budgets.base_s, most)
    default_s = default_timeout_s(run_s)
    return run_s, min(first.timeout_s or default_s, max(most, default_s))


def has_time(tag: Tag) -> bool:
    """Whether the tag has GPU seconds left that are not reserved."""
    if tag.budget_gpu_seconds is None:
        return True
    return tag.spent_gpu_seconds + tag.reserved_gpu_seconds < tag.budget_gpu_seconds


def ends_after_s(tag: Tag, timeout_s: float, held_s: float = 0.0) -> float:
    """Time limit of a run under its tag's present budget, in seconds; `held_s` is reserved for it already."""
    if tag.budget_gpu_seconds is None:
        return timeout_s
    left_s = tag.budget_gpu_seconds - tag.spent_gpu_seconds - tag.reserved_gpu_seconds + held_s
    return round(min(timeout_s, max(left_s, 0.0)), 3)


# -- Runs that got more time than others: they are judged by their value at the end of the normal budget.


def base_value(e: Experiment) -> float | None:
    """The report nearest to the end of the normal budget; None if no extension was used."""
    if e.extended_s is None:
        return None
    return e.base_metric if has_used_extension(e.extended_s, e.last_progress) else None


def has_used_extension(extended_s: float | None, last_progress: float | None) -> bool:
    """Whether an extended run has reported after the end of its normal budget."""
    return extended_s is not None and not is_within_budget(last_progress or 0.0)


def at_base(report: ResultReport, e: Experiment) -> ResultReport:
    """The result with the value that compares with runs that were not extended."""
    base = base_value(e)
    return report if base is None else report._replace(value=base)


def with_extension(ending: Ending, printed: float) -> Ending:
    """The ending with the reason why its value differs from the printed one."""
    e = ending.experiment
    if base_value(e) is None:
        return ending
    why = (
        f"it was given {e.extended_s:g} s more than others, and printed {printed:g} at their end: it is judged by"
        " what it reported at the end of its budget"
    )
    before = ending.fields.get("reason")
    return ending.with_answer({"reason": f"{why}; {before}" if before else why})
