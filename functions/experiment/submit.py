"""experiment::submit registers an experiment and has it trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from pydantic import Field

from functions.children import Children
from functions.contract import MIB, Call, function
from functions.experiment._clone import Code, asks_git, check_trainable
from functions.experiment._ideas import NewIdea, RegisteredExperiment, answered, hint_of, with_found_parent
from functions.rules.baselines import is_base_code, owes_baseline
from functions.rules.entering import admitted, run_of, scripts_of_run
from functions.rules.time_limits import TIMEOUT, ends_after_s, longest_s
from functions.views.budgets import held_back
from functions.views.hints import Queue, alive, next_step, open_step, standstill
from state.change import Change
from state.decisions import RETEST_PRIORITY
from state.entries import Entered
from state.experiments import Experiments, line_of
from state.ids import CommitHash
from state.patches import packed
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
    idea, asked = request.idea(call), call.request_key("experiment::submit", request)
    idea, moved = await with_found_parent(idea, settings.clone, children, experiments)
    _, patch = await packed(request.patch)
    checked: Code | None = None

    async def decide(change: Change) -> Callable[[], Submitted] | Code | None:
        """The answer once it is committed; code that git is asked about first; None: the baseline comes first."""
        facts = await experiments.entry_facts(change, idea, asked, to_train=True)
        tag, workers = facts.tag, alive(facts.slots, facts.now, settings.stale_s)
        hint = hint_of(moved, tag)
        if (first := facts.first) is not None:
            queue = Queue(position=await experiments.position(first, workers), workers=len(workers))
            why_not = standstill(facts.slots, facts.now, settings.stale_s, first)
            step = next_step(first, queue, held_back(tag, first) or why_not)
            held_s = first.reserved_gpu_seconds or 0.0
            ends = ends_after_s(tag, first.timeout_s or longest_s(facts.policy), held_s)
            return change.idle(lambda: submitted(first, first.status, first.attempt, queue, ends, step, hint))
        scripts = scripts_of_run(facts.slots, workers, idea.pinned_gpu)
        code = Code(
            idea.commit_sha, tag.base_commit, request.patch, idea.config_delta or {}, idea.seed, scripts
        )
        if asks_git(settings.clone, code) and code != checked:
            return change.idle(code)
        if is_baseline := owes_baseline(tag, facts.policy):
            is_baseline = request.gpu_id is None and is_base_code(
                tag, idea.commit_sha, idea.config_delta, is_unpatched=not request.patch
            )
            if not is_baseline:
                return change.idle(None)
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
        entry = admitted(idea, facts, call.caller, follows_tip=moved is None)
        new = await experiments.submit(
            change, entry, facts, patch, asked, run, workers, is_baseline=is_baseline
        )
        why_not = standstill(facts.slots, facts.now, settings.stale_s, pinned=request.gpu_id)
        waits, ends = held_back(tag, None) or why_not, ends_after_s(tag, run.timeout_s)

        def answer() -> Submitted:
            queue = Queue(position=new.position, workers=len(workers))
            step = open_step(new.experiment_id, "queued", queue, waits)
            return submitted(new, "queued", 1, queue, ends, step, hint)

        return answer

    while True:
        match await experiments.change(decide, in_turn=line_of(idea.agent)):
            case None:
                await call.invoke("experiment::baseline", {"tag": idea.tag})
            case Code() as checked:
                await check_trainable(settings.clone, children, checked)
            case answer:
                return answer()


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
