"""experiment::submit registers an experiment and has it trained."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from functions.children import Children
from functions.contract import MIB, Call, function
from functions.experiment._clone import Code, check_trainable
from functions.experiment._ideas import NewIdea, RegisteredExperiment, answered, hint_of, with_found_parent
from functions.rules.baselines import is_base_code, owes_baseline
from functions.rules.entering import admitted, run_of, scripts_of_run
from functions.rules.pool.lending import next_turn
from functions.rules.time_limits import TIMEOUT, ends_after_s, longest_s
from functions.views.budgets import held_back
from functions.views.hints import Queue, alive, next_step, open_step, standstill
from state.decisions import RETEST_PRIORITY
from state.entries import Entered, WaitQueue
from state.experiments import Experiments
from state.ids import CommitHash
from state.records import Experiment, Status
from state.settings import Settings


class Submit(NewIdea):
    """An idea that a worker is to train."""

    commit_sha: CommitHash = Field(description="the commit that holds the change")
    priority: int = Field(0, ge=0, le=7, description="higher first")
    timeout_s: Annotated[float, Field(gt=0, le=7 * 86400)] | None = Field(
        None, description=TIMEOUT, examples=[660]
    )


class Submitted(RegisteredExperiment):
    FOR_AGENTS = (*RegisteredExperiment.FOR_AGENTS, "queue", "timeout_s", "next")

    attempt: int
    invocation_id: str
    status_url: str
    wait_url: str
    queue: Queue
    timeout_s: float
    """Seconds after which its run is ended, as its tag's budget stands now."""
    next: str
    """What to do now, in a sentence."""


@function("experiment::submit", role="agent", writes=True, body_limit=6 * MIB)
async def submit(
    request: Submit, call: Call, experiments: Experiments, children: Children, settings: Settings
) -> Submitted:
    """Register, and queue for training by the same move; the answer names the URL to wait at."""
    idea, patch, asked = request.idea(call), request.patch, call.request_key("experiment::submit", request)
    idea, moved = await with_found_parent(idea, settings.clone, children, experiments)
    while True:
        facts = await experiments.entry_facts(idea, asked, to_train=True)
        workers = alive(facts.slots, facts.now, settings.stale_s)
        if (first := facts.first) is not None:
            queue = Queue(position=await experiments.position(first, workers), workers=len(workers))
            why_not = standstill(facts.slots, facts.now, settings.stale_s, first)
            step = next_step(first, queue, held_back(facts.tag, first) or why_not)
            held_s = first.reserved_gpu_seconds or 0.0
            ends = ends_after_s(facts.tag, first.timeout_s or longest_s(facts.policy), held_s)
            return submitted(first, first.status, first.attempt, queue, ends, step, hint_of(moved, facts.tag))
        tag = facts.tag
        scripts = scripts_of_run(facts.slots, workers, idea.pinned_gpu)
        code = Code(idea.commit_sha, tag.base_commit, patch, idea.config_delta or {}, idea.seed, scripts)
        await check_trainable(settings.clone, children, code)
        if is_baseline := owes_baseline(tag, facts.policy):
            is_baseline = request.gpu_id is None and is_base_code(
                tag, idea.commit_sha, idea.config_delta, is_unpatched=not patch
            )
            if not is_baseline:
                await call.invoke("experiment::baseline", {"tag": tag.name})
                continue
        run = (
            run_of(facts.policy, priority=RETEST_PRIORITY)  # the others wait for it
            if is_baseline
            else run_of(
                facts.policy,
                priority=request.priority,
                timeout_s=request.timeout_s,
                pinned_gpu=request.gpu_id,
            )
        )
        waits_aside = held_back(tag, None)
        waits = WaitQueue(facts.rounds, workers, paused=waits_aside is not None, waiting=facts.waiting)
        entry = admitted(idea, facts, call.caller, follows_tip=moved is None)
        new = await experiments.submit(entry, patch, asked, run, waits, next_turn, is_baseline=is_baseline)
        if new is not None:
            queue = Queue(position=new.position, workers=len(workers))
            why_not = standstill(facts.slots, facts.now, settings.stale_s, pinned=request.gpu_id)
            step = open_step(new.experiment_id, "queued", queue, waits_aside or why_not)
            return submitted(
                new, "queued", 1, queue, ends_after_s(tag, run.timeout_s), step, hint_of(moved, tag)
            )


def submitted(
    e: Entered | Experiment,
    status: Status,
    attempt: int,
    queue: Queue,
    timeout_s: float,
    step: str,
    hint: str | None,
) -> Submitted:
    """What submitting this experiment answers, now and whenever it is repeated."""
    invocation = f"{e.experiment_id}.{attempt}"
    return Submitted(
        **answered(e, status, hint),
        attempt=attempt,
        invocation_id=invocation,
        status_url=f"/api/invocation/{invocation}",
        wait_url=f"/api/experiment/{e.experiment_id}/wait",
        queue=queue,
        timeout_s=timeout_s,
        next=step,
    )
