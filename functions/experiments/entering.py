"""New experiments: register and submit, and the parent that a commit shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import to_json

from functions.experiments.rules.entering import admitted, run_of, scripts_of_run
from functions.experiments.rules.opening import is_base_code, owes_baseline
from functions.experiments.views.hints import (
    Queue,
    alive,
    held_back,
    next_step,
    obstacle,
    open_step,
    standstill,
)
from functions.formats.patches import LONGEST_PATCH
from functions.kernel.clone import Code, asks_git, check_trainable, line_to_base
from functions.kernel.contract import MIB, Call, Category, Command, Line, Response, function
from functions.kernel.off_loop import Children
from functions.runs.rules.time_limits import TIMEOUT, ends_after_s, longest_s
from state.archive import packed
from state.change import Change
from state.decisions import RETEST_PRIORITY, Entered
from state.errors import Invalid
from state.experiments import Experiments
from state.ids import AgentName, CommitHash, ExperimentId, GpuId, Id, SelectionId, Sha, patch_id
from state.ids import Tag as TagName
from state.records import Experiment, Idea, Status, Tag, view_of
from state.settings import Settings

# -- New experiments as agents send them, and the parent that their commit shows.

LONGEST_DELTA = 64 * 1024
"""Bytes of the constants that an idea sets, as JSON."""


def _short(constants: dict[str, Any]) -> dict[str, Any]:
    if len(to_json(constants)) > LONGEST_DELTA:
        raise ValueError("is over 64 KiB as JSON: change train.py instead")
    return constants


class NewIdea(Command):
    """An idea with its parents, or with a selection that names them."""

    tag: TagName
    hypothesis: Line = Field(
        description="what is expected of the change, and why", examples=["A deeper model has a lower loss"]
    )
    category: Category = Field(description="what kind of change it is", examples=["architecture"])
    commit_sha: Sha = Field(description="the commit that holds the change")
    diff_summary: Line = Field(description="the change in a line", examples=["DEPTH = 8 -> 12"])
    description: Line | None = Field(
        None, description="default: the first line of diff_summary", examples=["increase depth 8 -> 12"]
    )
    diff: Annotated[str, Field(max_length=LONGEST_PATCH)] | None = Field(
        None,
        description="the whole patch (git diff --binary) against the tag's base_commit",
        examples=[
            "diff --git a/train.py b/train.py\n--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-DEPTH = 8\n+DEPTH = 12\n"
        ],
    )
    parent_id: ExperimentId | None = Field(None, description="the experiment that it is built on")
    parent_ids: list[ExperimentId] = Field(
        default_factory=list,
        max_length=16,
        description="the same, where there may be several",
        examples=[["mar11-41", "mar11-44"]],
    )
    selection_id: SelectionId | None = Field(
        None, description="what trace::select answered; it names the parents"
    )
    gpu_id: GpuId | None = Field(None, description="the only GPU that may train it; default: any")
    config_delta: Annotated[dict[str, Any], AfterValidator(_short)] | None = Field(
        None,
        description="top-level constants of train.py to set; as JSON 64 KiB at most",
        examples=[{"DEPTH": 12}],
    )
    hypothesis_id: Id | None = Field(
        None,
        description="the hypothesis of the tag that this tests: its result is evidence for it",
        examples=["hyp_0a1b2c"],
    )
    agent: AgentName | None = None
    seed: int | None = Field(None, description="the seed that it is trained with", examples=[1337])

    @model_validator(mode="after")
    def _one_way_to_name_parents(self) -> Self:
        if self.parent_id and self.parent_ids and self.parent_ids != [self.parent_id]:
            raise ValueError("parent_id and parent_ids disagree: send one of them")
        return self

    @property
    def patch(self) -> bytes | None:
        """The patch as it is stored. Raises Invalid: it is too long."""
        patch = self.diff.encode() if self.diff is not None else None
        if patch is not None and len(patch) > LONGEST_PATCH:
            raise Invalid("diff is over 4 MiB", hint="leave data and binaries out of the commit")
        return patch

    def idea(self, call: Call) -> Idea:
        return view_of(
            Idea,
            self,
            description=self.description or self.diff_summary.strip().split("\n")[0] or self.hypothesis,
            diff_id=patch_id(self.patch),
            owner=call.caller.owner,
            parent_ids=self.parent_ids or ([self.parent_id] if self.parent_id else []),
            pinned_gpu=self.gpu_id,
            traceparent=call.traceparent,
        )


class RegisteredExperiment(Response):
    FOR_AGENTS: ClassVar[tuple[str, ...]] = ("experiment_id", "status", "duplicate_of", "parent_id", "hint")

    experiment_id: str
    status: str
    number: int
    duplicate_of: str | None = None
    """The first experiment of the tag with the same patch or commit; null where both are new."""
    parent_id: str | None
    """The first of `parent_ids`."""
    parent_ids: list[str]
    """Its parents. The parent that its commit shows replaces a named one; without either it is the tip."""
    hint: str | None = None
    """Why its parent is not the named one, and why a run of its tag would not begin now."""


def answered(e: Entered | Experiment, status: str, hint: str | None) -> dict[str, Any]:
    """The fields of `RegisteredExperiment`."""
    return {
        "experiment_id": e.experiment_id,
        "status": status,
        "number": e.number,
        "duplicate_of": e.duplicate_of,
        "parent_id": next(iter(e.parent_ids), None),
        "parent_ids": [*e.parent_ids],
        "hint": hint,
    }


async def with_found_parent(
    idea: Idea, clone: Path | None, children: Children, experiments: Experiments
) -> tuple[Idea, str | None]:
    """The idea, and a sentence where it has another parent than it named.

    The parent is the experiment with the nearest ancestor commit in the lab's clone. A named parent is kept if the
    clone lacks one of the commits, or if the idea is a patch.

    Raises:
        Exhausted: too many others ask git.
    """
    if clone is None or not idea.parent_ids or idea.selection_id is not None:
        return idea, None
    base, parents = await experiments.commits_of(idea.tag, idea.parent_ids)
    if base is None or len(parents) < len(idea.parent_ids):
        return idea, None
    line = await line_to_base(clone, children, idea.commit_sha, base, parents)
    if line is None:
        return idea, None
    found, commit = await experiments.first_tried_of(idea.tag, line)
    if found in idea.parent_ids or any(commit.startswith(parent) for parent in parents):
        return idea, None
    named = " and ".join(idea.parent_ids)
    said = f"The commit {idea.commit_sha} is built on {found or 'the base commit'}, not on {named}."
    return idea.model_copy(update={"parent_ids": [found] if found else []}), said


def hint_of(moved: str | None, tag: Tag) -> str | None:
    """Why its parent is not the named one, and why its run would not begin now."""
    return " ".join(filter(None, (moved, obstacle(tag)))) or None


class RegisterExperiment(NewIdea):
    """An idea that its agent trains itself, or has trained later."""


@function("experiment::register", role="agent", writes=True, body_limit=6 * MIB)
async def register(
    request: RegisterExperiment, call: Call, experiments: Experiments, children: Children, settings: Settings
) -> RegisteredExperiment:
    """Register an experiment with its hypothesis and patch; a repeated idea is reported, not refused."""
    idea, asked = request.idea(call), call.request_key("experiment::register", request)
    idea, moved = await with_found_parent(idea, settings.clone, children, experiments)
    _, patch = await packed(request.patch)

    async def decide(change: Change) -> tuple[Entered | Experiment, Tag]:
        facts = await experiments.entry_facts(change, idea, asked)
        if facts.first is not None:
            return facts.first, facts.tag
        entry = admitted(idea, facts, call.caller, follows_tip=moved is None)
        return await experiments.register(change, entry, facts, patch, asked), facts.tag

    new, tag = await experiments.change(decide)
    return RegisteredExperiment(**answered(new, "registered", hint_of(moved, tag)))


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
        match await experiments.change(decide):
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
