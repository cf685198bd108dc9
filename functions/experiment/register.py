"""experiment::register remembers what is about to be tried, before anything runs."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from functions.contract import MIB, Call, Category, Command, Line, Response, function
from functions.rules.access import check_own
from functions.rules.keeps.verdict import should_abort
from functions.views.budgets import obstacle
from state.digests import digest_of
from state.errors import Conflict, Invalid
from state.experiments import Experiments
from state.experiments.registering import RequestKey, stale_epoch
from state.ids import GpuId, Id, Sha, Tag
from state.policies import Policies
from state.policy import Policy
from state.records import Choice, Experiment
from state.records import Tag as TagRecord
from state.tags import Tags
from state.traces import Traces, over

PATCH_LIMIT = 4 * MIB


class Descent(Command):
    """What an experiment was made from: a selection, or parents under either name."""

    parent_id: Id | None = None
    parent_ids: list[Id] = Field(default_factory=list, max_length=16)
    selection_id: Id | None = Field(None, description="what trace::select answered; it names the parents")

    @model_validator(mode="after")
    def _one_way_to_name_parents(self) -> Self:
        if self.parent_id and self.parent_ids and self.parent_ids != [self.parent_id]:
            raise ValueError("parent_id and parent_ids disagree: send one of them")
        return self

    @property
    def parents(self) -> list[str]:
        return self.parent_ids or ([self.parent_id] if self.parent_id else [])


class Register(Descent):
    tag: Tag
    hypothesis: Line
    category: Category
    commit_sha: Sha
    diff_summary: Line
    description: Line | None = Field(None, description="default: the first line of diff_summary")
    diff: Annotated[str, Field(max_length=PATCH_LIMIT)] | None = Field(
        None, description="the whole patch (git diff --binary) against the tag's base_commit"
    )
    gpu_id: GpuId | None = None
    config_delta: dict[str, Any] | None = None
    agent: Id | None = None
    seed: int | None = None


class Registered(Response):
    experiment_id: str
    status: str
    number: int
    duplicate_of: str | None = None
    hint: str | None = None
    """Why a run of its tag would not begin now."""


@function("experiment::register", role="agent", writes=True, body_limit=6 * MIB)
async def register(
    request: Register, call: Call, tags: Tags, policies: Policies, experiments: Experiments, traces: Traces
) -> Registered:
    """Register an experiment with its hypothesis and patch; a repeated idea is reported, not refused."""
    return await registration(request, call, tags, policies, experiments, traces, to_train=False)


async def registration(
    request: Register,
    call: Call,
    tags: Tags,
    policies: Policies,
    experiments: Experiments,
    traces: Traces,
    *,
    to_train: bool,
) -> Registered:
    """Register; with `to_train` its run is set aside from the tag's budget by the same move, or nothing is done.

    Raises:
        BudgetExhausted: there is no room for the run.
    """
    asked = None
    if given := call.key(request.request_id):
        name = hashlib.sha256(f"experiment::register|{given}".encode()).hexdigest()
        asked = RequestKey(name, digest_of(request))
        if first := await experiments.first_answer(asked):
            return answered(await experiments.get(first), await tags.get(request.tag))
    tag = await tags.get(request.tag)
    policy, version = await policies.get(request.tag)
    crashes = await tags.crashes_in_a_row(request.tag)
    if policy.on_abort == "block" and should_abort(crashes, policy.crash_limit):
        raise Conflict(
            f"{crashes} experiments of {request.tag!r} in a row have crashed",
            hint="find the common cause, then POST /api/experiment/resume",
            fields={"consecutive_crashes": crashes},
        )
    patch = request.diff.encode() if request.diff is not None else None
    if patch is not None and len(patch) > PATCH_LIMIT:
        raise Invalid("diff is over 4 MiB", hint="leave data and binaries out of the commit")
    await _check_parents(request, experiments)
    made_from = await _made_from(request, call, policy, experiments, traces)

    reserve_s = policy.budgets.base_s if to_train else None
    number = await experiments.reserve_number(request.tag, reserve_s)
    experiment = Experiment(
        experiment_id=f"{request.tag}-{number}",
        tag=request.tag,
        number=number,
        status="registered",
        hypothesis=request.hypothesis,
        description=request.description or request.diff_summary.strip().split("\n")[0] or request.hypothesis,
        category=request.category,
        commit_sha=request.commit_sha,
        diff_summary=request.diff_summary,
        **made_from,
        agent=request.agent,
        owner=call.caller.owner,
        seed=request.seed,
        config_delta=request.config_delta,
        pinned_gpu=request.gpu_id,
        policy_version=version,
        keep_rule=policy.keep_rule,
        patience_s=policy.stale_after_s,
        traceparent=call.traceparent,
        registered_at=0.0,
    )
    stored = await experiments.register(experiment, patch, asked, reserve_s)
    return answered(await experiments.get(stored), tag)


def answered(experiment: Experiment, tag: TagRecord) -> Registered:
    """What registering this experiment answers, now and whenever it is repeated."""
    return Registered(
        experiment_id=experiment.experiment_id,
        status="registered",
        number=experiment.number,
        duplicate_of=experiment.duplicate_of,
        hint=obstacle(tag),
    )


async def _made_from(
    request: Register, call: Call, policy: Policy, experiments: Experiments, traces: Traces
) -> dict[str, Any]:
    """The experiment's fields that say what it is made from.

    Without a selection it is made from the parents named; in multi mode, without any, from the branch of the best.

    Raises:
        Invalid: the selection is another tag's, or has other parents. Conflict: it is over or was used.
    """
    if request.selection_id is None:
        if policy.traces.mode == "single":
            return {"parent_ids": request.parents}
        return await _implied(request, experiments, traces)
    found = await traces.selection(request.selection_id)
    check_own(call.caller, found.owner, found.selection_id)
    if found.tag != request.tag or request.parents not in ([], found.parent_ids):
        raise Invalid(
            f"{found.selection_id} is a selection of {found.tag!r} with the parents {found.parent_ids}",
            hint="register in its tag, and leave parent_ids out: the selection names them",
        )
    if found.status == "expired" and found.epoch != (epoch := await traces.epoch(found.tag)):
        raise stale_epoch(found.selection_id, epoch)
    if found.status != "open":
        raise over(found)
    return {
        "parent_ids": found.parent_ids,
        "trace_id": found.trace_id,
        "selection_id": found.selection_id,
        "local_selection": found.local_selection,
        "selection": Choice.model_validate(found.model_dump()),
    }


async def _implied(request: Register, experiments: Experiments, traces: Traces) -> dict[str, Any]:
    """What somebody who selects nothing builds on: the first parent's trace, or the one that the best belongs to."""
    parents = await experiments.many(request.parents)
    for parent in parents:
        if parent.outdated:
            raise Conflict(
                f"parent {parent.experiment_id!r} came in when its epoch was over: it is nobody's parent",
                hint="build on a node of the present epoch: POST /api/trace/list shows them",
                fields={"code": "stale_epoch"},
            )
    if not parents and (best := await experiments.best(request.tag)) is not None:
        trace_id = (await experiments.get(best.experiment_id)).trace_id
    else:
        trace_id = parents[0].trace_id if parents else None
    found = await traces.many([trace_id]) if trace_id else []
    if not found:
        return {"parent_ids": request.parents}
    tip = found[0].tip
    if not parents and tip is not None:
        parents = await experiments.many([tip])
    ids = [e.experiment_id for e in parents]
    return {
        "parent_ids": ids,
        "trace_id": trace_id,
        "local_selection": [e.number for e in parents],
        "selection": Choice(
            kind="extend" if len(ids) == 1 else "merge",
            trace_id=found[0].trace_id,
            parent_ids=ids,
            expected_tip=ids[0] if ids else None,
            base_experiment_id=found[0].base,
            base_commit_sha=found[0].base_commit_sha,
            epoch=(await traces.forest(request.tag)).epoch,
            reason="nothing was selected: the parent that was named, else the branch of the best",
        ),
    }


async def _check_parents(request: Register, experiments: Experiments) -> None:
    found = {e.experiment_id: e for e in await experiments.many(request.parents)}
    for parent in request.parents:
        if parent not in found or found[parent].tag != request.tag:
            raise Invalid(
                f"parent {parent!r} is no experiment of {request.tag!r}",
                hint="POST /api/experiment/history lists them; a first experiment has no parent",
            )
        if (first := found[parent].retest_of) is not None:
            raise Invalid(
                f"parent {parent!r} is a retest: it tried nothing of its own",
                hint=f"name {first}, the experiment whose code it ran again",
            )
