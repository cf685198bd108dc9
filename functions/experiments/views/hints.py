"""Next steps for agents, and what a tag's budget and pause mean for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from functions.experiments.rules.opening import owes_baseline, waits_for_baseline
from functions.experiments.rules.verdict import should_abort
from functions.pool.rules.health import effective_status
from functions.runs.rules.ticks import is_silent
from functions.trust.rules.guarding import HINT as GUARD
from functions.trust.rules.overruns import HINT as OVER_BUDGET
from state.policy import Policy
from state.program import as_typed
from state.records import OPEN, Experiment, GpuState, Status, Tag
from state.refusals import CONFINED_ONLY

# -- A tag's budget and pause in answers, and their effect on a new run.


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
    return Budget(
        gpu_seconds=_account(tag.budget_gpu_seconds, tag.spent_gpu_seconds, tag.reserved_gpu_seconds),
        runs=_account(tag.budget_runs, tag.spent_runs, tag.reserved_runs),
        patch_bytes=_account(tag.budget_patch_bytes, tag.spent_patch_bytes, 0),
    )


def _account(limit: float | None, spent: float, reserved: float) -> Account:
    left = None if limit is None else round(limit - spent - reserved, 3)
    return Account(limit=limit, spent=spent, reserved=reserved, left=left)


def is_limited(tag: Tag) -> bool:
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


# -- Next steps for agents, each in a sentence or two.

ASK = "Ask for a direction: POST /api/search/suggest."
SELECT = "Select what the next experiment is made from (trace::select): POST /api/trace/select."
BASELINE = "Nothing has run yet: the unchanged train.py comes first, as the baseline."
BASELINE_COMES = (
    "Nothing has run yet: the lab runs the unchanged train.py, the baseline, before what you submit first."
)
MEND = "Reset to base_commit_sha; mend the idea if it is worth it, else go on."
RUN_AGAIN = (
    "Its code was not at fault: mend what `error` names and submit it again, or reset to base_commit_sha."
)
HUNG = "It hung after it had printed its result, so its worker ended it: have it end its threads and child processes."
ADD_WORKER = as_typed("no worker is there: start one with ./nightjar worker --repo PATH")
GPUS_NAMED = 3
PROGRESS_LINE = "step 00123 (12.3%) | loss: 2.345678 |"
NO_SIGNAL = (
    "Its tag stops bad runs early, and train.py has reported nothing. Two lines let it: `from nightjar_report import"
    " report`, and in the training loop `report(value, step / steps)` with the metric's value so far. Or it prints"
    f" lines `{PROGRESS_LINE}`, and an operator sets `stopping.tick_source` to `stdout`."
)
NO_PROGRESS_LINE = (
    "Its tag stops bad runs early by the progress lines in their output, and train.py has printed none: have it print"
    f" `{PROGRESS_LINE}`, with the share of its budget that is used, and flush its output."
)


class Queue(BaseModel):
    """Position in the wait queue, and number of live workers."""

    position: int
    workers: int


def alive(gpus: Sequence[GpuState], now: float, stale_s: float) -> list[str]:
    """GPUs with a live worker of the lab."""
    return [
        gpu.gpu_id for gpu in gpus if not gpu.of_agent and effective_status(gpu, now, stale_s) != "offline"
    ]


def standstill(
    gpus: Sequence[GpuState],
    now: float,
    stale_s: float,
    e: Experiment | None = None,
    pinned: str | None = None,
) -> str | None:
    """Why no GPU takes this experiment, a run pinned to this GPU, or any run, although workers exist.

    None: a fitting GPU is idle or trains, so the run waits for its turn.
    """
    pinned = pinned or (e.pinned_gpu if e else None)
    gpu_class = e.gpu_class if e and e.retest_of else None
    served = [g for g in gpus if not g.of_agent]
    there = [
        g
        for g in served
        if (g.gpu_id == pinned if pinned else effective_status(g, now, stale_s) != "offline")
    ]
    fit = [g for g in there if gpu_class in (None, g.gpu_name)]
    if e and e.is_confined:
        open_slots, fit = fit, [g for g in fit if g.is_confined]
        if open_slots and not fit:
            named = ", ".join(_unfit(g) for g in open_slots[:GPUS_NAMED])
            return f"No GPU may run it ({named}): {CONFINED_ONLY}."
    if any(effective_status(g, now, stale_s) in ("idle", "training") for g in fit):
        return None
    if fit and pinned:
        return f"It runs on {pinned} alone, which {_out_because(fit[0], now, stale_s)}."
    if fit:
        why = [f"{g.gpu_id} {_out_because(g, now, stale_s)}" for g in fit[:GPUS_NAMED]]
        more = f"; {len(fit) - GPUS_NAMED} more" if len(fit) > GPUS_NAMED else ""
        return f"No GPU takes runs now: {'; '.join(why)}{more}."
    return f"It waits for a GPU of the class {gpu_class!r}, which its first run had." if there else None


def _unfit(gpu: GpuState) -> str:
    """A GPU that may not run what has a hidden split, and why."""
    if gpu.owner is not None or gpu.transport == "http":
        return f"{gpu.gpu_id} is a worker's by URL"
    return f"{gpu.gpu_id} has isolation {gpu.labels.get('isolation', 'unknown')}"


def _out_because(gpu: GpuState, now: float, stale_s: float) -> str:
    if effective_status(gpu, now, stale_s) == "offline":
        return "is offline"
    if gpu.sick is not None:
        return f"is unhealthy ({gpu.sick})"
    if gpu.tripped is not None:
        left_s = max(0.0, (gpu.tripped_until or now) - now)
        return f"is unhealthy ({gpu.tripped}) and tries a run in {left_s:.0f} s"
    if gpu.drained:
        return "is drained until an operator takes that back (POST /api/pool/drain)"
    return "gets no more runs: its worker ends" if gpu.leaving else "is still being cleared of its last run"


def tag_step(tag: Tag, policy: Policy, crashes_in_a_row: int, *, is_empty: bool) -> str:
    """Next step of an agent without open experiments in a tag. `obstacle` is shown separately."""
    if should_abort(crashes_in_a_row, policy.crash_limit):
        return abort_step(crashes_in_a_row)
    step = SELECT if policy.traces.mode == "multi" else ASK
    if not is_empty or waits_for_baseline(tag):
        return step
    return f"{BASELINE_COMES if owes_baseline(tag, policy) else BASELINE} {step}"


def abort_step(crashes_in_a_row: int) -> str:
    """Next step after so many crashes that something must be broken for all runs."""
    return (
        f"{crashes_in_a_row} runs in a row crashed: try nothing new. Reset to base_commit_sha, run that code"
        " unchanged, and find what is broken for all."
    )


def next_step(e: Experiment, queue: Queue | None, obstacle: str | None = None) -> str:
    """Next step of the agent that asks for this experiment; `obstacle`: why it does not run now."""
    if e.selection_id is not None and e.status not in OPEN:
        return _select_again(e)
    build = (
        f"Keep the commit and build the next idea on it{', with its config_delta' if e.config_delta else ''}"
    )
    match e.status:
        case "registered" | "queued" | "leased" | "running":
            return open_step(e.experiment_id, e.status, queue, obstacle, e.last_progress)
        case "keep" if e.best_key is not None:
            return (
                f"Reset to base_commit_sha, the tag's best, and go on. It was measured otherwise: {e.reason}."
            )
        case "keep" if e.trust == "provisional":
            return (
                f"{build}. It may have to run once more on another seed:"
                " if it is demoted, base_commit_sha of your next suggestion is what to go back to."
            )
        case "keep" if e.trust == "first":
            return f"{build}: nothing was there to compare it with."
        case "keep":
            return f"{build}."
        case "discard" if e.hidden_refused:
            return (
                "It is better on the visible data, but the hidden split does not bear it out. Reset to"
                " base_commit_sha, and try what should help on any data."
            )
        case "discard" if e.trust == "demoted":
            return "It was kept, but further runs did not bear it out: reset to base_commit_sha and go on."
        case "discard" if e.is_claim:
            return (
                "The lab trains this tag, so what you measured yourself is a claim: the lab runs its code if it"
                " would be kept, and judges it by that run. Reset to base_commit_sha and go on."
            )
        case "discard" if (why := _not_allowed(e)) is not None:
            return f"{why} Reset to base_commit_sha."
        case "discard":
            return "Reset to base_commit_sha and try something else: POST /api/search/suggest."
        case "crash" if e.error_kind == "infra":
            return RUN_AGAIN
        case "crash" | "timeout":
            return MEND
        case "stopped":
            return "It was stopped: reset to base_commit_sha and go on."
        case "invalid" if e.error_kind == "leak":
            return "Its predictions use what they must not know (error): reset to base_commit_sha, and mend the idea."
        case "invalid" if e.over_budget:
            return f"It is over its budget, so it says nothing of {e.retest_of}."
        case "invalid":
            return "The evaluator differs from the tag's: restore it, reset to base_commit_sha and try again."
        case "measured":
            return f"It bears on {e.retest_of}: GET /api/experiment/{e.retest_of} shows what all its runs measured."
        case "retracted":
            return f"Its result was taken back ({e.retracted_because}): reset to base_commit_sha and go on."
        case "lost":
            return "Its worker is gone: reset to base_commit_sha and submit it again if it is worth it."


def _not_allowed(e: Experiment) -> str | None:
    """The limit or guard that a discard broke, with the remedy. None: it broke neither."""
    if e.over_budget:
        return f"It is over its budget, so it is not kept. {OVER_BUDGET}"
    return f"It broke a guard, so it is not kept ({e.reason}). {GUARD}" if e.guard is not None else None


def open_step(
    experiment_id: str,
    status: Status,
    queue: Queue | None,
    obstacle: str | None = None,
    progress: float | None = None,
) -> str:
    """Next step for an experiment that is not finished."""
    again = f"ask again with GET /api/experiment/{experiment_id}/wait"
    match status:
        case "queued" if obstacle is not None:
            besides = f" Besides, {ADD_WORKER}." if queue is not None and queue.workers == 0 else ""
            return f"{obstacle}{besides} Prepare your next idea, then {again}."
        case "queued" if queue is not None and queue.workers == 0:
            return f"It stays queued until a worker comes; {ADD_WORKER}."
        case "leased":
            return (
                f"A GPU is lent to it, and its worker prepares the run. Prepare your next idea, then {again}."
            )
        case "running":
            done = f" ({progress:.0%} done)" if progress is not None else ""
            return f"It trains{done}: prepare your next idea, then {again}."
        case "registered":
            return (
                "Train it and report with /api/experiment/complete or /crash,"
                " or have it trained with /api/gpu/train."
            )
        case _:
            return f"It waits for its turn: prepare your next idea, then {again}."


def no_signal(e: Experiment, policy: Policy) -> str | None:
    """Advice for a train.py without ticks, whose runs cannot be stopped early; None: it has ticks, or needs none."""
    if not is_silent(e, policy):
        return None
    return NO_SIGNAL if policy.stopping.tick_source == "report" else NO_PROGRESS_LINE


def _select_again(e: Experiment) -> str:
    """Next step after an experiment that was made from a selection: select again."""
    match e.status:
        case "keep" if e.trust == "provisional":
            became = "It is kept on its branch, and may have to run once more on another seed."
        case "keep":
            became = "It is kept: its branch goes on from it."
        case "crash" | "timeout":
            became = "It failed; its branch remembers that."
        case "retracted":
            became = "Its result was taken back; its branch goes on without it."
        case "stopped" | "lost" | "invalid":
            became = f"It is {e.status}, and no node of its branch."
        case _:
            became = _not_allowed(e) or "It is not kept; its branch remembers it."
    return f"{became} Select what the next one is made from: POST /api/trace/select."


LATE_S = 600.0
"""Lag in seconds from which a binding counts as stuck. A healthy one handles an event in seconds."""
MANY_LETTERS = 1000


def event_hints(events: Mapping[str, Any]) -> Iterator[str]:
    """Warnings about `Stream.lags`: bindings that hold old events back, and a pile of dead letters."""
    for name, lag in sorted(events["bindings"].items()):
        age, waiting = lag["oldest_s"], (lag["undelivered"] or 0) + (lag["unacknowledged"] or 0)
        if age is not None and age > LATE_S:
            yield (
                f"{name} is {age / 60:.0f} min behind, {max(1, waiting)} events wait for it and are kept until it"
                " has handled them: the log of the events process says why"
            )
    if events["dead_letters"] > MANY_LETTERS:
        yield (
            f"{events['dead_letters']} dead letters are kept:"
            + as_typed(" redrive them or discard them with ./nightjar call event::discard --all true")
        )
