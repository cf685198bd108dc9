"""gpu::train has a worker train one experiment, once a GPU is free; and the health and load of a GPU."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from functions.experiments.rules.entering import run_of, scripts_of_run
from functions.experiments.rules.opening import is_base_code, owes_baseline
from functions.experiments.rules.reports import REGISTER, already_finished
from functions.experiments.views.hints import Queue, alive, held_back, next_step, standstill
from functions.formats.train_command import no_script
from functions.kernel.contract import Call, Command, Every, Http, Request, Response, function
from functions.kernel.rules.access import check_own
from functions.pool.rules.health import WorkerView, complaint, is_stale, judge_sample, worker_view
from functions.runs.rules.time_limits import TIMEOUT, ends_after_s
from state.decisions import HeldLease
from state.errors import Invalid
from state.experiments import Experiments
from state.ids import ExperimentId, GpuId, Sha
from state.pool import HISTORY_EVERY_S, MEASURED, Pool
from state.records import OPEN, Experiment, Tag, stamp
from state.refusals import check_pinned
from state.settings import Settings


class Train(Command):
    experiment_id: ExperimentId
    commit_sha: Sha | None = Field(None, description="must be the registered one")
    config_delta: dict[str, Any] | None = Field(
        None, description="top-level constants of train.py to set", examples=[{"DEPTH": 12}]
    )
    timeout_s: Annotated[float, Field(gt=0, le=7 * 86400)] | None = Field(
        None, description=TIMEOUT, examples=[660]
    )
    budget_s: Annotated[float, Field(gt=0, le=7 * 86400)] | None = Field(
        None,
        description="seconds that it may train, at most what timeout_s may be; default: the tag's base budget",
        examples=[300],
    )
    gpu_id: GpuId | None = Field(None, description="wait for this GPU")
    priority: int = Field(0, ge=0, le=7, description="higher first")


class Accepted(Response):
    experiment_id: str
    status: str
    attempt: int
    invocation_id: str
    status_url: str
    queue: Queue
    paused: bool
    """An operator holds its tag's runs back."""
    timeout_s: float | None
    """Seconds after which its run is ended, as its tag's budget stands now; null: it is given none any more."""
    next: str
    """What to do now, in a sentence."""


@function(
    "gpu::train",
    Http("POST", "/api/gpu/train"),
    Http("POST", "/api/gpu/{gpu_id}/train"),
    role=("agent", "worker"),
    lane="gpu",
    writes=True,
)
async def train(request: Train, call: Call, experiments: Experiments, settings: Settings) -> Accepted:
    """Train an experiment on a GPU: queued at once, run by the worker of the GPU that it is lent.

    A repeated request answers its state.
    """
    while True:
        facts = await experiments.train_facts(request.experiment_id)
        e = facts.experiment
        check_trainable(request, e, call)
        workers = alive(facts.slots, facts.now, settings.stale_s)
        why_not = standstill(facts.slots, facts.now, settings.stale_s, e, request.gpu_id)
        paused = facts.tag.paused_at is not None
        if e.attempt > 0:
            return accepted(e, await experiments.position(e, workers), len(workers), facts.tag, why_not)
        tag, pinned = facts.tag, request.gpu_id or e.pinned_gpu
        if request.config_delta and () in scripts_of_run(facts.slots, workers, pinned):
            raise no_script(())
        if is_baseline := owes_baseline(tag, facts.policy) and e.retest_of is None and not facts.holds:
            delta = request.config_delta or e.config_delta
            is_baseline = pinned is None and is_base_code(
                tag, e.commit_sha, delta, is_unpatched=e.is_unpatched
            )
            if not is_baseline:
                await call.invoke("experiment::baseline", {"tag": tag.name})
                continue
        for gpu_id in {pinned, e.gpu_id if facts.holds else None}:
            check_pinned(gpu_id, facts.slots, is_confined=e.is_confined)
        run = run_of(
            facts.policy,
            priority=request.priority,
            budget_s=request.budget_s or e.budget_s,
            timeout_s=request.timeout_s,
            pinned_gpu=pinned,
            config_delta=request.config_delta,
        )
        # while its tag is paused the GPU that it holds would stand idle
        lease: HeldLease | None = ("returned" if paused else "used") if facts.holds else None
        queued = await experiments.enqueue(
            e, run, workers, takes_turn=e.retest_of is None, lease=lease, is_baseline=is_baseline
        )
        if queued is not None:
            now = e.model_copy(
                update={"status": queued.status, "attempt": queued.attempt, "timeout_s": run.timeout_s}
            )
            return accepted(now, queued.position, len(workers), facts.tag, why_not)


def check_trainable(request: Train, e: Experiment, call: Call) -> None:
    """Raise Forbidden, Invalid, Conflict for an experiment of another owner, another commit, or a finished one."""
    check_own(call.caller, e.owner, e.experiment_id)
    if request.commit_sha is not None and request.commit_sha != e.commit_sha:
        raise Invalid(
            f"{e.experiment_id} is registered with commit {e.commit_sha}, not {request.commit_sha}",
            hint="register another experiment for another commit",
        )
    if e.attempt > 0:
        return
    if e.status not in OPEN:
        raise already_finished(e, REGISTER)
    if e.retest_of is not None and (request.config_delta, request.budget_s) != (None, None):
        raise Invalid(
            f"{e.experiment_id} runs {e.retest_of} again, with its constants and its budget",
            hint="leave config_delta and budget_s out; what is to run otherwise is another experiment",
        )


def accepted(e: Experiment, position: int, workers: int, tag: Tag, why_not: str | None) -> Accepted:
    """Answer for an experiment that waits or trains."""
    queue, invocation = Queue(position=position, workers=workers), f"{e.experiment_id}.{e.attempt}"
    paused = tag.paused_at is not None
    return Accepted(
        experiment_id=e.experiment_id,
        status=e.status,
        attempt=e.attempt,
        invocation_id=invocation,
        status_url=f"/api/invocation/{invocation}",
        queue=queue,
        paused=paused,
        timeout_s=ends_after_s(tag, e.timeout_s, e.reserved_gpu_seconds or 0.0) if e.timeout_s else None,
        next=next_step(e, queue, held_back(tag, e) or why_not),
    )


# -- Health and load of a GPU.


class OfGpu(Request):
    gpu_id: GpuId


class Health(Response):
    gpu_id: str
    temperature_c: float | None = None
    memory_used_mb: float | None = None
    memory_total_mb: float | None = None
    utilization_percent: float | None = None
    power_w: float | None = None
    throttle: str | None = None
    ecc: int | None = None
    xid: int | None = None
    disk_free_mb: float | None = None
    sampled_at: str | None = None
    error: str | None = None


@function(
    "gpu::health",
    Http("POST", "/api/gpu/health"),
    Http("GET", "/api/gpu/{gpu_id}/health"),
    Every("health_s", each="gpu"),
    role="viewer",
)
async def health(request: OfGpu, call: Call, pool: Pool, settings: Settings) -> Health:
    """The newest sample that a GPU's keeper took; fired by the clock, it also takes a sick GPU out of the pool."""
    found = await pool.holding(request.gpu_id)
    gpu = found.gpu
    if gpu.sampled_at is None:
        return Health(gpu_id=gpu.gpu_id, error="no sample yet: its worker sends one with each heartbeat")
    problem = complaint(gpu, found.now, stale_s=settings.stale_s)
    # While nothing at all is heard of it, it is offline: that says nothing about its health when it comes back.
    if call.trigger == "cron" and not is_stale(gpu.heartbeat_at, found.now, settings.stale_s):
        judged = judge_sample(gpu, problem)
        if judged is not None:
            await pool.flag(gpu.gpu_id, set_=judged.flags, clear=judged.cleared, reason=judged.reason)
    sample = {name: value for name, value in (gpu.health or {}).items() if name in Health.model_fields}
    return Health.model_validate(
        sample | {"gpu_id": gpu.gpu_id, "sampled_at": stamp(gpu.sampled_at), "error": problem}
    )


class OneGpu(Response):
    worker: WorkerView


@function("gpu::get", role=("viewer", "worker"))
async def get(request: OfGpu, pool: Pool, settings: Settings) -> OneGpu:
    """One GPU or CPU slot of the pool: its status, its lease and its health."""
    found = await pool.holding(request.gpu_id)
    return OneGpu(worker=worker_view(found.gpu, found.now, settings.stale_s))


class ReadGpuHistory(OfGpu):
    hours: float = Field(6.0, gt=0, le=24, description="so far back")


class GpuHistory(Response):
    """Samples as lists of equal length, oldest first; null: not measured."""

    gpu_id: str
    environment: list[str]
    """The Python that trains there, and its packages, as its worker found them when it started; empty: not known."""
    every_s: float
    """Least seconds between two samples. A longer gap means that its worker was silent."""
    at: list[float]
    """Seconds since 1970."""
    utilization_percent: list[float | None]
    memory_used_mb: list[float | None]
    temperature_c: list[float | None]
    memory_total_mb: float | None


@function("gpu::history", role="viewer")
async def history(request: ReadGpuHistory, pool: Pool) -> GpuHistory:
    """Utilization, memory and temperature of a GPU or CPU slot over the last hours, one sample in 2 minutes."""
    gpu, environment, samples = await pool.history(request.gpu_id, request.hours * 3600)
    at, *columns = zip(*samples, strict=True) if samples else ((), *((),) * len(MEASURED))
    measured = {name: [*values] for name, values in zip(MEASURED, columns, strict=True)}
    total = (gpu.health or {}).get("memory_total_mb")
    return GpuHistory.model_validate(
        {
            "gpu_id": gpu.gpu_id,
            "environment": environment,
            "every_s": HISTORY_EVERY_S,
            "at": [*at],
            "memory_total_mb": total if isinstance(total, int | float) else None,
            **measured,
        }
    )
