"""experiment::crash records a run that ended without a result."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from functions.contract import Call, Command, Response, function
from functions.experiment._branches import base_of, growth_of
from functions.experiment._results import check_result
from functions.rules.keeps.outcome import check_open, is_evidence, replayed
from functions.rules.keeps.verdict import Key, should_abort
from state.decisions import Breaker, Finish
from state.digests import digest_of
from state.errors import Conflict
from state.experiments import Experiments
from state.ids import Id
from state.policies import Policies
from state.pool import Pool
from state.settings import Settings
from state.tags import Tags
from state.traces import Traces

Kind = Literal["oom", "nan", "timeout", "import", "killed", "no_metrics", "disk", "infra", "other"]


class Crash(Command):
    experiment_id: Id
    error: Annotated[str, Field(max_length=65536)]
    kind: Kind = "other"
    attempt: int | None = Field(None, ge=0)
    fence: int | None = Field(None, ge=0)
    training_seconds: Annotated[float, Field(ge=0, le=1e9)] | None = None


class Crashed(Response):
    experiment_id: str
    status: str
    consecutive_crashes: int
    should_abort: bool
    action: str
    base_commit_sha: str | None
    replayed: bool = False


@function("experiment::crash", role=("agent", "worker"), writes=True)
async def crash(
    request: Crash,
    call: Call,
    experiments: Experiments,
    tags: Tags,
    policies: Policies,
    pool: Pool,
    traces: Traces,
    settings: Settings,
) -> Crashed:
    """Record a crash or timeout, and say whether so many in a row mean that something is broken for all."""
    digest = digest_of(request)
    while True:
        experiment = await experiments.get(request.experiment_id)
        await check_result(call.caller, experiment, request.attempt, request.fence, pool)
        if stored := replayed(await experiments.answer(request.experiment_id), "crash", digest):
            return Crashed(**stored, replayed=True)
        try:
            check_open(experiment, request.attempt, request.fence)
        except Conflict:
            if is_evidence(experiment, request.attempt):
                await experiments.keep_evidence(
                    experiment.experiment_id, digest, {"op": "crash", **request.model_dump(exclude_none=True)}
                )
            raise
        tag = await tags.get(experiment.tag)
        policy, version = await policies.get(tag.name)
        before = await tags.crashes_in_a_row(tag.name)
        counts = request.kind != "infra" and experiment.retest_of is None
        in_a_row = before + counts
        best = await experiments.best(tag.name)
        to = best.commit_sha if best else tag.base_commit
        key = Key(tag.key_gpu_class, tag.key_evaluator_hash, tag.key_budget_seconds)
        base = await base_of(experiment, tag, policy, key, experiments, traces)
        status: Literal["crash", "timeout"] = "timeout" if request.kind == "timeout" else "crash"
        growth, committed = None, dict[str, Any]()
        if request.kind != "infra":  # that says nothing of the idea: it is no node
            growth, committed = await growth_of(experiment, status, None, tag, policy, experiments, traces)
        answer = Crashed(
            experiment_id=experiment.experiment_id,
            status=status,
            consecutive_crashes=in_a_row,
            should_abort=should_abort(in_a_row, policy.crash_limit),
            action="git_reset",
            base_commit_sha=to if base is None else base.commit_sha,
        )
        finish = Finish(
            experiment,
            status,
            {
                "error": request.error,
                "error_kind": request.kind,
                "training_seconds": request.training_seconds,
                "base_commit_sha": answer.base_commit_sha,
                "policy_version": version,
                **committed,
            },
            answer={"op": "crash", "digest": digest, "answer": answer.model_dump(exclude={"replayed"})},
            crashes_before=before if counts else None,
            crash_count="count" if counts else "worker",
            breaker=Breaker(settings.worker_crash_limit, settings.worker_cooldown_s),
            training_seconds=request.training_seconds,
            growth=growth,
        )
        if await experiments.finish(finish):
            return answer
