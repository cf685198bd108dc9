"""A tag's budget and pause in answers, and their effect on a new run."""

from __future__ import annotations

from pydantic import BaseModel

from functions.rules.baselines import waits_for_baseline
from state.records import Experiment, Tag


class Account(BaseModel):
    """One resource of a tag."""

    limit: float | None
    """Null is no limit."""
    spent: float
    reserved: float
    """Reserved for runs that wait or train."""
    left: float | None
    """Limit minus spent and reserved; below zero if the limit was lowered below that."""


class Budget(BaseModel):
    """What a tag may spend and has spent."""

    gpu_seconds: Account
    runs: Account
    patch_bytes: Account
    """Bytes of its patches in the lab's store, compressed and each content once; nothing is reserved."""


def budget_view(tag: Tag) -> Budget:
    """A tag's budget in answers."""
    return Budget(
        gpu_seconds=_account(tag.budget_gpu_seconds, tag.spent_gpu_seconds, tag.reserved_gpu_seconds),
        runs=_account(tag.budget_runs, tag.spent_runs, tag.reserved_runs),
        patch_bytes=_account(tag.budget_patch_bytes, tag.spent_patch_bytes, 0),
    )


def _account(limit: float | None, spent: float, reserved: float) -> Account:
    left = None if limit is None else round(limit - spent - reserved, 3)
    return Account(limit=limit, spent=spent, reserved=reserved, left=left)


def is_limited(tag: Tag) -> bool:
    """Whether it has a budget at all."""
    return any(b is not None for b in (tag.budget_gpu_seconds, tag.budget_runs, tag.budget_patch_bytes))


def held_back(tag: Tag, e: Experiment | None) -> str | None:
    """Why this run, or a new run of the tag, is held back; None: it is not."""
    if tag.paused_at is None and not waits_for_baseline(tag, e.experiment_id if e else None):
        return None
    return obstacle(tag)


def obstacle(tag: Tag) -> str | None:
    """Why a run of this tag would not begin now, and the remedy; None: it would."""
    if tag.paused_at is not None:
        because = f" ({tag.pause_reason})" if tag.pause_reason else ""
        return (
            f"{tag.name} is paused{because}: what is submitted keeps its place and is not run until an operator"
            " resumes it with POST /api/tag/unpause."
        )
    if waits_for_baseline(tag):
        return (
            f"{tag.name} waits for its baseline {tag.baseline_id}, the unchanged code of its base commit: what is"
            " submitted keeps its place and is run once that has ended."
        )
    if not is_limited(tag):
        return None
    view = budget_view(tag)
    accounts = {"GPU seconds": view.gpu_seconds, "runs": view.runs}
    spent_up = [name for name, account in accounts.items() if account.left is not None and account.left <= 0]
    if spent_up:
        return (
            f"The budget of {tag.name} has no {' and no '.join(spent_up)} left: submit is refused until open runs end"
            " below what was reserved, or an operator raises it with POST /api/tag/budget."
        )
    return None
