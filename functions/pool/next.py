"""pool::next hands a worker its next run, and waits for one."""

from __future__ import annotations

import asyncio
import base64
import logging
from typing import Annotated, Any

from pydantic import Field

from functions.contract import Call, Request, Response, function
from functions.pool._stores import Stores
from functions.rules.access import check_own_gpu
from functions.rules.pool.broken_lease import given_up
from state.errors import Damaged, Unavailable
from state.ids import GpuId
from state.leases import Holding
from state.policy import TickSource
from state.records import Experiment, Gpu
from state.seeds import unseeded
from state.wakeups import woken_within

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 5.0
"""A wake-up may be lost with its connection; the state never is."""


class Next(Request):
    gpu_id: GpuId
    timeout: float = Field(50, ge=0, le=50, description="seconds to wait for a run")


class Work(Response):
    """One attempt, as the lab decided it."""

    experiment_id: str
    attempt: int
    fence: int
    """Sent with every report on the attempt."""
    commit_sha: str
    base_commit: str | None
    """The tag's base: the evaluator is that of this commit, and the patch applies to it."""
    patch_base64: str | None
    """For a clone that lacks the commit."""
    config_delta: dict[str, Any] | None
    """Top-level constants of train.py to set, by name."""
    seed: int | None
    """The script's NIGHTJAR_SEED."""
    metric: str
    evaluator: str
    """Path of the evaluator in the repository."""
    evaluator_files: list[str]
    """Other files and folders that are the base's, too."""
    evaluator_command: str | None
    """What measures the score after the training; null: the script prints it."""
    budget_s: float
    timeout_s: float
    """Seconds after which the run is ended."""
    traceparent: str | None
    tick_source: TickSource
    """Source of its ticks. report: the script reports them. stdout: loss and progress of the printed progress line.
    gpu::renew is told the same."""


class NextRun(Response):
    work: Annotated[Work | None, Field(description="null: there is none yet, ask again")]


@function("pool::next", role="worker", writes=True, keeps_answer=False, held_for="timeout")
async def next(request: Next, call: Call, stores: Stores) -> NextRun:
    """The run that a GPU was lent for, for its worker; the same one until gpu::begin begins it.

    The lab lends GPUs by itself, as soon as they are idle. It rings for those of the transport redis by RQ.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + request.timeout
    with stores.wakeups.subject(request.gpu_id) as woken:
        while True:
            held = await stores.pool.holding(request.gpu_id)
            check_own_gpu(call.caller, held.gpu, request.gpu_id)
            if (work := await _work(held, stores)) is not None:
                return NextRun(work=work)
            if (left := deadline - clock()) <= 0:
                return NextRun(work=None)
            await woken_within(woken, min(left, LOOK_AGAIN_S))


async def _work(held: Holding, stores: Stores) -> Work | None:
    """The leased attempt of the GPU, if it has not begun. An attempt that no worker can train is ended."""
    gpu, e = held.gpu, held.experiment
    if e is None or e.status != "leased" or e.fence != gpu.fence:
        return None
    tag = await stores.tags.get(e.tag)
    assert e.budget_s is not None
    assert e.timeout_s is not None
    try:
        [patch] = await stores.experiments.patches_named([e.sent_diff_id or e.diff_id])
    except (Damaged, Unavailable) as problem:
        if problem.retry_after is not None:
            raise
        await _give_up(gpu, e, problem.detail, stores)
        return None
    return Work(
        experiment_id=e.experiment_id,
        attempt=e.attempt,
        fence=gpu.fence,
        commit_sha=e.commit_sha,
        base_commit=tag.base_commit,
        # a retest has a seed of its own
        config_delta=(unseeded(e.config_delta) if e.retest_of else e.config_delta) or None,
        seed=e.seed,
        metric=tag.metric,
        evaluator=tag.evaluator,
        evaluator_files=list(tag.evaluator_files),
        evaluator_command=tag.evaluator_command,
        budget_s=e.budget_s,
        timeout_s=e.timeout_s,
        tick_source=held.policy.stopping.tick_source if held.policy else "report",
        patch_base64=None if patch is None else base64.b64encode(patch).decode(),
        traceparent=e.traceparent,
    )


async def _give_up(gpu: Gpu, e: Experiment, reason: str, stores: Stores) -> None:
    log.error("%s cannot be trained: %s", e.experiment_id, reason)
    await stores.experiments.break_lease(gpu.gpu_id, lambda held: given_up(held, gpu.fence, reason))
