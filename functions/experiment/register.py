"""experiment::register remembers what is about to be tried, before anything runs."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from functions.contract import MIB, Call, Category, Command, Line, Response, function
from functions.rules.budget import obstacle
from functions.rules.verdict import should_abort
from state.digests import digest_of
from state.errors import Conflict, Invalid
from state.experiments import Experiments, RequestKey
from state.ids import GpuId, Id, Sha, Tag
from state.policies import Policies
from state.records import Experiment
from state.records import Tag as TagRecord
from state.tags import Tags

PATCH_LIMIT = 4 * MIB


class Descent(Command):
    """What an experiment was made from; either name will do."""

    parent_id: Id | None = None
    parent_ids: list[Id] = Field(default_factory=list, max_length=16)

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
    request: Register, call: Call, tags: Tags, policies: Policies, experiments: Experiments
) -> Registered:
    """Register an experiment with its hypothesis and patch; a repeated idea is reported, not refused."""
    return await registration(request, call, tags, policies, experiments, to_train=False)


async def registration(
    request: Register,
    call: Call,
    tags: Tags,
    policies: Policies,
    experiments: Experiments,
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
        parent_ids=request.parents,
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


async def _check_parents(request: Register, experiments: Experiments) -> None:
    found = {e.experiment_id: e for e in await experiments.many(request.parents)}
    for parent in request.parents:
        if parent not in found or found[parent].tag != request.tag:
            raise Invalid(
                f"parent {parent!r} is no experiment of {request.tag!r}",
                hint="POST /api/experiment/history lists them; a first experiment has no parent",
            )
