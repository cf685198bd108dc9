"""experiment::complete judges a finished run: keep or discard."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from functions.contract import Call, Command, Response, function
from functions.experiment._branches import base_of, growth_of
from functions.experiment._results import check_result
from functions.experiment._weighing import trust_in, weigh
from functions.rules.keeps.outcome import check_open, is_evidence, replayed
from functions.rules.keeps.settling import next_seed
from functions.rules.keeps.standing import new_best
from functions.rules.keeps.verdict import Key, check_plausible, compare, contradiction, judge, score
from state.decisions import Finish
from state.digests import digest_of
from state.errors import Conflict
from state.experiments import Experiments
from state.experiments.reading import retest_id
from state.ids import Id
from state.noise import Noises
from state.policies import Policies
from state.pool import Pool
from state.records import RETESTED, Best, Experiment, Status, Tag, Trust
from state.tags import Tags
from state.traces import Traces

Measured = Annotated[float, Field(ge=0, le=1e15)]
Seconds = Annotated[float, Field(ge=0, le=1e9)]
"""Bounded, because a tag adds them up."""


class Complete(Command):
    experiment_id: Id
    val_bpb: float = Field(description="the tag's metric, whatever its name")
    peak_vram_mb: Measured | None = None
    training_seconds: Seconds | None = None
    total_tokens_m: Measured | None = None
    mfu_percent: Measured | None = None
    num_steps: Measured | None = None
    num_params_m: Measured | None = None
    depth: Measured | None = None
    metrics: dict[str, float] = Field(default_factory=dict, max_length=200)
    attempt: int | None = Field(None, ge=0)
    fence: int | None = Field(None, ge=0)
    evaluator_hash: Annotated[str, Field(max_length=64)] | None = None
    gpu_class: Annotated[str, Field(max_length=100)] | None = None
    budget_seconds: Annotated[float, Field(gt=0)] | None = None


class Retest(Response):
    retest_id: str
    seed: int


class Completed(Response):
    experiment_id: str
    status: str
    val_bpb: float
    improved: bool
    delta: float
    best_val_bpb: float | None
    action: str
    base_commit_sha: str | None
    near_miss: bool
    p_better: float | None = None
    """Probability that its true value beats the best's; None while no code ran twice, or without a best."""
    trust: Trust | None = None
    """How far the keep can be trusted, where the tag's rule is `confirmed`."""
    retest: Retest | None = None
    """The run that is to bear a provisional keep out."""
    branch_improved: bool | None = None
    """Whether it beats its branch's base, where the tag has several traces: that is what keeps it there. None where
    they cannot be compared: then it is kept as the best of its own kind, and the branch stays on its base."""
    replayed: bool = False


MEASURES = (
    "val_bpb",
    "peak_vram_mb",
    "training_seconds",
    "total_tokens_m",
    "mfu_percent",
    "num_steps",
    "num_params_m",
    "depth",
    "metrics",
)


@function("experiment::complete", role=("agent", "worker"), writes=True)
async def complete(
    request: Complete,
    call: Call,
    experiments: Experiments,
    tags: Tags,
    policies: Policies,
    pool: Pool,
    noises: Noises,
    traces: Traces,
) -> Completed:
    """Record a run's result: the status, by how much it beats the best, and what the agent does with its commit."""
    digest = digest_of(request)
    while True:
        experiment = await experiments.get(request.experiment_id)
        await check_result(call.caller, experiment, request.attempt, request.fence, pool)
        if stored := replayed(await experiments.answer(request.experiment_id), "complete", digest):
            return Completed(**stored, replayed=True)
        tag = await tags.get(experiment.tag)
        try:
            check_plausible(tag.metric, request.val_bpb)
            check_open(experiment, request.attempt, request.fence)
        except Conflict:
            if is_evidence(experiment, request.attempt):
                await experiments.keep_evidence(
                    experiment.experiment_id,
                    digest,
                    {"op": "complete", **request.model_dump(exclude_none=True)},
                )
            raise
        decide = _measure_again if experiment.retest_of is not None else _decide
        finish, answer = await decide(
            request, experiment, tag, digest, experiments, policies, pool, noises, traces
        )
        if await experiments.finish(finish):
            return answer


async def _decide(
    request: Complete,
    experiment: Experiment,
    tag: Tag,
    digest: str,
    experiments: Experiments,
    policies: Policies,
    pool: Pool,
    noises: Noises,
    traces: Traces,
) -> tuple[Finish, Completed]:
    main = Key(tag.key_gpu_class, tag.key_evaluator_hash, tag.key_budget_seconds)
    said = await _key_of(request, experiment, pool)
    key, agrees = compare(main, said)
    other_key = None if agrees else contradiction(main, said).text
    best = await experiments.best(tag.name, other_key)
    changed = main.evaluator_hash is not None and main.evaluator_hash != key.evaluator_hash
    policy, version = await policies.get(tag.name)
    if changed:
        return _invalid(request, experiment, tag, key, digest, version, await experiments.best(tag.name))
    verdict = judge(request.val_bpb, best.val_bpb if best else None, tag.direction, policy.near_miss_margin)
    weighed = await weigh(request.val_bpb, experiment, other_key, tag, key, best, experiments, noises)
    before = best.commit_sha if best else tag.base_commit
    trust = await trust_in(request.val_bpb, experiment, tag, best, weighed.noise, policy)
    retest = None
    if trust == "provisional":
        retest = Retest(
            retest_id=retest_id(experiment, experiment.retests),
            seed=next_seed(experiment.seed, ()),
        )
    base = await base_of(experiment, tag, policy, key, experiments, traces)
    beats_base = None if base is None else base.is_beaten(request.val_bpb, tag)
    kept = verdict.improved or bool(beats_base)
    before = before if base is None else base.commit_sha
    status: Status = "keep" if kept else "discard"
    answer = Completed(
        experiment_id=experiment.experiment_id,
        status=status,
        val_bpb=request.val_bpb,
        improved=verdict.improved,
        delta=verdict.delta,
        best_val_bpb=request.val_bpb if verdict.improved else best.val_bpb if best else None,
        action="keep_commit" if kept else "git_reset",
        base_commit_sha=experiment.commit_sha if kept else before,
        near_miss=verdict.near_miss,
        p_better=weighed.p_better,
        trust=trust,
        retest=retest,
        branch_improved=beats_base,
    )
    growth, committed = await growth_of(
        experiment,
        status,
        request.val_bpb,
        tag,
        policy,
        experiments,
        traces,
        beats_base=agrees and (base is None or bool(beats_base)),
    )
    finish = Finish(
        experiment,
        status,
        {
            **_measured(request, key, version),
            "improved": answer.improved,
            "delta": answer.delta,
            "p_better": answer.p_better,
            "near_miss": answer.near_miss,
            "base_commit_sha": answer.base_commit_sha,
            "trust": trust,
            "best_key": other_key,
            "branch_improved": answer.branch_improved,
            **committed,
        },
        answer=_answered(answer, digest),
        other_key=other_key,
        best_version=best.version if best else 0,
        new_best=new_best(experiment, request.val_bpb, best, tag.direction, policy.retest_top_k),
        near_miss_score=score(request.val_bpb, tag.direction)
        if answer.status == "discard" and agrees
        else None,
        crash_count="reset",
        key_version=tag.key_version,
        tag_fields=_newly_known(main, key) if agrees else None,
        training_seconds=request.training_seconds,
        repeat=weighed.repeat,
        growth=growth,
    )
    return finish, answer


def _invalid(
    request: Complete,
    experiment: Experiment,
    tag: Tag,
    key: Key,
    digest: str,
    policy_version: int,
    main_best: Best | None,
) -> tuple[Finish, Completed]:
    """Another evaluator than the tag's: a result that is compared with nothing."""
    answer = Completed(
        experiment_id=experiment.experiment_id,
        status="invalid",
        val_bpb=request.val_bpb,
        improved=False,
        delta=0.0,
        best_val_bpb=main_best.val_bpb if main_best else None,
        action="git_reset",
        base_commit_sha=main_best.commit_sha if main_best else tag.base_commit,
        near_miss=False,
    )
    finish = Finish(
        experiment,
        "invalid",
        {
            **_measured(request, key, policy_version),
            "improved": False,
            "delta": 0.0,
            "near_miss": False,
            "base_commit_sha": answer.base_commit_sha,
        },
        answer=_answered(answer, digest),
        crash_count="reset",
        key_version=tag.key_version,
        training_seconds=request.training_seconds,
    )
    return finish, answer


async def _measure_again(
    request: Complete,
    retest: Experiment,
    tag: Tag,
    digest: str,
    experiments: Experiments,
    policies: Policies,
    pool: Pool,
    noises: Noises,
    traces: Traces,
) -> tuple[Finish, Completed]:
    """A retest's value: evidence for its experiment if it was measured as that was, and judged by nobody."""
    first = await experiments.get(retest.retest_of or "")
    theirs = Key(first.gpu_class, first.evaluator_hash, first.budget_seconds)
    key, agrees = compare(theirs, await _key_of(request, retest, pool))
    best = await experiments.best(tag.name, first.best_key)
    _, version = await policies.get(tag.name)
    weighed = None
    if agrees:
        weighed = await weigh(request.val_bpb, retest, first.best_key, tag, key, best, experiments, noises)
    verdict = judge(request.val_bpb, best.val_bpb if best else None, tag.direction, 0.0)
    answer = Completed(
        experiment_id=retest.experiment_id,
        status=RETESTED if agrees else "invalid",
        val_bpb=request.val_bpb,
        improved=False,
        delta=verdict.delta,
        best_val_bpb=best.val_bpb if best else None,
        action="git_reset",
        base_commit_sha=best.commit_sha if best else tag.base_commit,
        near_miss=False,
        p_better=weighed.p_better if weighed else None,
    )
    finish = Finish(
        retest,
        RETESTED if agrees else "invalid",
        {
            **_measured(request, key, version),
            "delta": answer.delta,
            "base_commit_sha": answer.base_commit_sha,
        },
        answer=_answered(answer, digest),
        crash_count="reset",
        training_seconds=request.training_seconds,
        repeat=weighed.repeat if weighed else None,
    )
    return finish, answer


def _measured(request: Complete, key: Key, policy_version: int) -> dict[str, Any]:
    """What the run measured, and under which conditions."""
    return {
        **request.model_dump(include=set(MEASURES), exclude_none=True),
        "gpu_class": key.gpu_class,
        "evaluator_hash": key.evaluator_hash,
        "budget_seconds": key.budget_seconds,
        "policy_version": policy_version,
    }


def _answered(answer: Completed, digest: str) -> dict[str, Any]:
    return {"op": "complete", "digest": digest, "answer": answer.model_dump(exclude={"replayed"})}


def _newly_known(main: Key, key: Key) -> dict[str, object] | None:
    """Parts of the tag's main key that this run is the first to know."""
    new = {
        "key_gpu_class": key.gpu_class if main.gpu_class is None else None,
        "key_evaluator_hash": key.evaluator_hash if main.evaluator_hash is None else None,
        "key_budget_seconds": key.budget_seconds if main.budget_seconds is None else None,
    }
    known: dict[str, object] = {name: value for name, value in new.items() if value is not None}
    return known or None


async def _key_of(request: Complete, experiment: Experiment, pool: Pool) -> Key:
    gpu_class = request.gpu_class
    if gpu_class is None and experiment.gpu_id and (gpu := await pool.find(experiment.gpu_id)):
        gpu_class = gpu.gpu_name
    return Key(gpu_class, request.evaluator_hash, request.budget_seconds)
