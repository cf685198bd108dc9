"""Waiting for an experiment: its next change, and the newest lines of its log."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from functions.experiments.rules.verdict import should_abort
from functions.experiments.views.hints import (
    HUNG,
    Queue,
    abort_step,
    alive,
    held_back,
    next_step,
    no_signal,
    standstill,
)
from functions.experiments.views.runs import score_of
from functions.formats.metrics_block import deciding_line
from functions.kernel.contract import Call, Http, Request, Response, function
from functions.kernel.rules.access import check_own
from functions.search.rules.suggestions import short
from state.experiments import Experiments
from state.facts import LiveLog, WaitFacts
from state.ids import ExperimentId
from state.records import OPEN, Experiment, RunVerdict, Score, view_of
from state.settings import Settings
from state.wakeups import Wakeups, woken_within

LOOK_AGAIN_S = 5.0
"""A wake-up may be lost with its connection; the state never is."""
LONGEST_ERROR = 450
"""Characters of an error for a tool's caller; experiment::get has all of it."""


class Wait(Request):
    experiment_id: ExperimentId
    timeout: float = Field(50, ge=0, le=50, description="seconds")
    until: Literal["change", "finished"] = Field("change", description="any change, or the final status")


class OutcomeState(BaseModel):
    experiment_id: str
    status: str
    finished: bool
    changed: bool
    val_bpb: float | None


class ExperimentOutcome(Response, RunVerdict, OutcomeState):
    FOR_AGENTS = (
        *("experiment_id", "status", "finished", "val_bpb", "improved", "delta", "best_val_bpb"),
        *("action", "base_commit_sha", "near_miss", "branch_improved", "trust", "reported", "reason"),
        *("error", "error_kind", "should_abort", "progress", "no_signal", "queue", "next"),
    )

    best_val_bpb: float | None
    action: str | None
    """What to do with the commit: keep_commit, or git_reset to `base_commit_sha`; null until it is judged."""
    hung: bool
    """It hung after it had printed its result: its worker ended it, and its score counts."""
    score: Score | None
    """Source of `val_bpb`: printed by the code that was scored, or measured by the tag's trusted evaluator."""
    reported: float | None
    """The value that train.py printed, if `val_bpb` is trusted."""
    diff_differs: bool
    """The diff that was sent makes other files than the commit: the commit was trained, and its own patch is kept."""
    error: str | None
    error_kind: str | None
    consecutive_crashes: int
    """Crashes of the tag in a row, as of now."""
    should_abort: bool
    """So many crashes that something is broken for all runs: find the cause before the next run."""
    progress: float | None
    metric: float | None
    """Its last reported value; under stopping.tick_source stdout, the last printed loss."""
    no_signal: str | None
    """Advice for a train.py without ticks, whose runs cannot be stopped early; null: nothing is missing."""
    queue: Queue | None
    paused: bool
    """An operator holds its tag's runs back."""
    next: str
    """What to do now, in a sentence."""


@function(
    "experiment::wait", Http("GET", "/api/experiment/{experiment_id}/wait"), role="agent", held_for="timeout"
)
async def wait(
    request: Wait, call: Call, experiments: Experiments, wakeups: Wakeups, settings: Settings
) -> ExperimentOutcome:
    """Wait until the status changes (or, with until=finished, is final); answers what to do next."""
    deadline = asyncio.get_running_loop().time() + request.timeout
    with wakeups.subject(request.experiment_id) as woken:
        facts = await experiments.wait_facts(request.experiment_id)
        first = facts.experiment
        check_own(call.caller, first.owner, first.experiment_id)
        while (left := deadline - asyncio.get_running_loop().time()) > 0 and waits(request, first, facts):
            await experiments.touch(facts.experiment)
            await woken_within(woken, min(left, LOOK_AGAIN_S))
            facts = await experiments.wait_facts(request.experiment_id)
    queue = why_not = None
    if facts.experiment.status == "queued":
        workers = alive(facts.slots, facts.now, settings.stale_s)
        position = await experiments.position(facts.experiment, workers)
        queue = Queue(position=position, workers=len(workers))
        why_not = standstill(facts.slots, facts.now, settings.stale_s, facts.experiment)
    answer = outcome(facts, queue, why_not, changed=facts.experiment.status != first.status)
    if call.trigger == "mcp" and answer.error is not None:
        return answer.model_copy(update={"error": in_few_words(answer.error, answer.error_kind)})
    return answer


def in_few_words(error: str, kind: str | None) -> str:
    """The deciding line of a long error, and its end."""
    if len(error) <= LONGEST_ERROR:
        return error
    third = LONGEST_ERROR // 3
    return f"{short(deciding_line(error, kind), 2 * third)}\n[...]\n{error[-third:]}"


def waits(request: Wait, first: Experiment, facts: WaitFacts) -> bool:
    """Whether the caller still has to wait."""
    status = facts.experiment.status
    return status in OPEN and (request.until == "finished" or status == first.status)


def action_of(e: Experiment) -> str:
    """What the agent does with the commit. It resets after a keep under another comparability key."""
    return "keep_commit" if e.status == "keep" and e.best_key is None else "git_reset"


def outcome(
    facts: WaitFacts, queue: Queue | None, why_not: str | None, *, changed: bool
) -> ExperimentOutcome:
    """The experiment as it is now, with the agent's next step."""
    e, tag, best, crashes = facts.experiment, facts.tag, facts.best, facts.crashes_in_a_row
    finished = e.status not in OPEN
    aborts = should_abort(crashes, facts.policy.crash_limit)
    step = abort_step(crashes) if finished and aborts else next_step(e, queue, held_back(tag, e) or why_not)
    return view_of(
        ExperimentOutcome,
        e,
        finished=finished,
        changed=changed,
        best_val_bpb=best.val_bpb if best else None,
        action=action_of(e) if finished else None,
        base_commit_sha=e.base_commit_sha or (best.commit_sha if best else tag.base_commit),
        score=score_of(e),
        consecutive_crashes=crashes,
        should_abort=aborts,
        progress=e.last_progress,
        metric=e.last_metric,
        no_signal=no_signal(e, facts.policy),
        queue=queue,
        paused=tag.paused_at is not None,
        next=f"{step} {HUNG}" if e.hung else step,
    )


LINES_AGAIN_S = 0.5
"""Workers send lines about this often."""


class ReadLog(Request):
    experiment_id: ExperimentId
    after: Annotated[str, Field(max_length=64)] | None = Field(
        None, description="version of what the caller has", examples=["5d41402abc4b2a76"]
    )
    timeout: float = Field(0, ge=0, le=50, description="seconds to wait for lines or a report after that")


class LogLines(Response):
    experiment_id: str
    status: str
    finished: bool
    log: str
    """The newest lines, at most 16 KiB: text of the training script, not to be trusted."""
    version: str
    """Of these lines and this report, for `after`."""
    progress: float | None
    metric: float | None
    """Its last reported value; under stopping.tick_source stdout, the last printed loss."""


@function(
    "experiment::log", Http("GET", "/api/experiment/{experiment_id}/log"), role="viewer", held_for="timeout"
)
async def log(request: ReadLog, experiments: Experiments) -> LogLines:
    """The newest lines of its log and its last report; with `after` and `timeout`, waits for newer ones.

    Over HTTP, `follow=true` makes server-sent events of it: see `triggers/run_log.py`.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + request.timeout
    while True:
        found = await experiments.live_log(request.experiment_id)
        version = version_of(found)
        if version != request.after or found.status not in OPEN or clock() >= deadline:
            return view_of(
                LogLines,
                found,
                experiment_id=request.experiment_id,
                finished=found.status not in OPEN,
                version=version,
            )
        await asyncio.sleep(min(LINES_AGAIN_S, max(0.0, deadline - clock())))


def version_of(found: LiveLog) -> str:
    """Changes with the lines, and with each report."""
    said = f"{found.progress!r} {found.metric!r} {found.log}"
    return hashlib.sha256(said.encode()).hexdigest()[:16]
