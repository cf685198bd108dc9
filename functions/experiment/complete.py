"""experiment::complete judges a finished run: keep or discard."""

from __future__ import annotations

import asyncio
import json
from dataclasses import astuple
from typing import Annotated, Any

from pydantic import Field

from functions.contract import Call, Command, Response, function
from functions.experiment._results import check_result
from functions.rules.noise import Mean, Repeats, noise_of, p_better, repeated
from functions.rules.outcome import check_open, is_evidence, replayed
from functions.rules.verdict import Key, check_plausible, compare, contradiction, judge, score
from state.digests import digest_of
from state.errors import Conflict
from state.experiments import Experiments, Finish, Repeat
from state.ids import Id
from state.noise import Noises, code_of
from state.policies import Policies
from state.pool import Pool
from state.records import Best, Experiment, Tag
from state.tags import Tags

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
        finish, answer = await _decide(request, experiment, tag, digest, experiments, policies, pool, noises)
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
) -> tuple[Finish, Completed]:
    main = Key(tag.key_gpu_class, tag.key_evaluator_hash, tag.key_budget_seconds)
    said = await _key_of(request, experiment, pool)
    key, agrees = compare(main, said)
    other_key = None if agrees else contradiction(main, said).text
    best = await experiments.best(tag.name, other_key)
    changed = main.evaluator_hash is not None and main.evaluator_hash != key.evaluator_hash
    policy, version = await policies.get(tag.name)
    verdict = judge(request.val_bpb, best.val_bpb if best else None, tag.direction, policy.near_miss_margin)
    repeat, chance = None, None
    if changed:
        main_best = await experiments.best(tag.name)
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
    else:
        kept = verdict.improved
        repeat, chance = await _weigh(request.val_bpb, experiment, tag, key, best, experiments, noises)
        before = best.commit_sha if best else tag.base_commit
        answer = Completed(
            experiment_id=experiment.experiment_id,
            status=verdict.status,
            val_bpb=request.val_bpb,
            improved=verdict.improved,
            delta=verdict.delta,
            best_val_bpb=request.val_bpb if kept else best.val_bpb if best else None,
            action="keep_commit" if kept else "git_reset",
            base_commit_sha=experiment.commit_sha if kept else before,
            near_miss=verdict.near_miss,
            p_better=chance,
        )
    measured: dict[str, Any] = request.model_dump(include=set(MEASURES), exclude_none=True)
    finish = Finish(
        experiment,
        "invalid" if changed else verdict.status,
        {
            **measured,
            "gpu_class": key.gpu_class,
            "evaluator_hash": key.evaluator_hash,
            "budget_seconds": key.budget_seconds,
            "improved": answer.improved,
            "delta": answer.delta,
            "p_better": answer.p_better,
            "near_miss": answer.near_miss,
            "base_commit_sha": answer.base_commit_sha,
            "policy_version": version,
        },
        answer={"op": "complete", "digest": digest, "answer": answer.model_dump(exclude={"replayed"})},
        other_key=other_key,
        best_version=best.version if best else 0,
        new_best=Best(
            experiment_id=experiment.experiment_id,
            val_bpb=request.val_bpb,
            commit_sha=experiment.commit_sha,
            updated_at=0.0,
        )
        if answer.improved
        else None,
        near_miss_score=score(request.val_bpb, tag.direction)
        if answer.status == "discard" and agrees
        else None,
        crash_count="reset",
        key_version=tag.key_version,
        tag_fields=_newly_known(main, key) if agrees else None,
        training_seconds=request.training_seconds,
        repeat=repeat,
    )
    return finish, answer


async def _weigh(
    value: float,
    e: Experiment,
    tag: Tag,
    key: Key,
    best: Best | None,
    experiments: Experiments,
    noises: Noises,
) -> tuple[Repeat, float | None]:
    """What the run adds to the noise of its tag and GPU class, and how probably it truly beats the best."""
    code = code_of(e)
    spread = await noises.spread(tag.name, key.gpu_class, code)
    before = _parsed(spread.runs[0])
    runs = repeated(before, value)
    added = runs.squares - before.squares if before else 0.0
    repeat = Repeat(
        noises.key(tag.name, key.gpu_class), code, spread.runs[0], json.dumps(astuple(runs)), added
    )
    noise = noise_of(spread.squares + added, spread.df + (before is not None))
    if best is None or noise is None:
        return repeat, None
    theirs = code_of(await experiments.get(best.experiment_id))
    others = (
        runs if theirs == code else _parsed((await noises.spread(tag.name, key.gpu_class, theirs)).runs[0])
    )
    incumbent = Mean(others.mean, others.runs) if others else Mean(best.val_bpb)
    # in a thread: its first call imports scipy
    chance = await asyncio.to_thread(p_better, Mean(runs.mean, runs.runs), incumbent, noise, tag.direction)
    return repeat, chance


def _parsed(kept: str) -> Repeats | None:
    return Repeats(*json.loads(kept)) if kept else None


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
