"""How long a run may take: by its tag's policy, and by what is left of its tag's budget."""

from __future__ import annotations

from functions.rules.access import Caller
from state.errors import Forbidden, Invalid
from state.policy import Policy
from state.records import Experiment, Tag

TIMEOUT = (
    "seconds after which it is ended, at most budgets.max_timeout_s of the policy; default: 2 x budget + 60"
)
"""What documents say of `timeout_s`."""


def longest_s(policy: Policy) -> float:
    """The most seconds that a run may be given."""
    return policy.budgets.max_timeout_s or default_timeout_s(policy.budgets.base_s)


def default_timeout_s(budget_s: float) -> float:
    """Seconds after which a run with this budget is ended, where nothing else is asked for."""
    return 2 * budget_s + 60


def check_allowed(policy: Policy, **asked: float | None) -> None:
    """Refuse seconds that are more than a run of this tag may be given.

    Raises:
        Invalid: naming the most that is allowed.
    """
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
    """Refuse an agent a tag of its own whose runs may take longer than those of any other tag.

    Raises:
        Forbidden: naming the most that is allowed.
    """
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
    """The budget and the time limit of one more run of this code: as long as the first.

    A budget that only its agent has named is no longer than the policy allows. What the lab ran at first may take as
    long again, whatever the policy says by now.
    """
    most = longest_s(policy)
    run_s = first.budget_s or min(first.budget_seconds or policy.budgets.base_s, most)
    default_s = default_timeout_s(run_s)
    return run_s, min(first.timeout_s or default_s, max(most, default_s))


def has_time(tag: Tag) -> bool:
    """Whether the tag's budget of GPU seconds has anything left that is not set aside."""
    if tag.budget_gpu_seconds is None:
        return True
    return tag.spent_gpu_seconds + tag.reserved_gpu_seconds < tag.budget_gpu_seconds


def ends_after_s(tag: Tag, timeout_s: float, held_s: float = 0.0) -> float:
    """Seconds after which a run is ended, as its tag's budget stands now; `held_s` is set aside for it already."""
    if tag.budget_gpu_seconds is None:
        return timeout_s
    left_s = tag.budget_gpu_seconds - tag.spent_gpu_seconds - tag.reserved_gpu_seconds + held_s
    return round(min(timeout_s, max(left_s, 0.0)), 3)
