"""One attempt at one experiment for the runner: what it is to train, how it ended, and what it is told meanwhile."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

from functions.formats.metrics_block import MEASURES, FailureKind
from functions.kernel.lanes import Extension, Order, Source
from state.errors import Conflict, Invalid, Unavailable
from state.policy import TickSource
from state.records import Footprint, Score, TimeSpent


@dataclass(frozen=True)
class TrainingJob:
    """One attempt at one experiment, with everything a worker needs to run it."""

    experiment_id: str
    attempt: int
    fence: int
    commit_sha: str
    base_commit: str | None
    """The tag's base: the evaluator is taken from it, and `patch` applies to it."""
    patch: bytes | None
    """The sent patch against `base_commit`, for a clone that lacks the commit."""
    config_delta: dict[str, object] | None
    """Top-level constants of train.py to set, by name."""
    evaluator: str
    """Path of the trusted evaluator inside the repository (`prepare.py`)."""
    budget_s: float
    timeout_s: float
    seed: int | None = None
    traceparent: str | None = None
    evaluator_files: Sequence[str] = ()
    """Other files and folders that the score depends on; taken from the base, too."""
    evaluator_command: str | None = None
    """Command that measures the score after training, from the base's files; None: the script prints it."""
    splits: Sequence[str] = ()
    """Hidden splits that the evaluator measures, too: `hidden`, `test`."""
    tick_source: TickSource = "report"
    check: str | None = None
    """Command that has to pass before the training, within `check_s` seconds."""
    check_s: float = 60.0


@dataclass(frozen=True)
class TrainedRun:
    """The run has a finite metric. It ended by itself, or hung after its result."""

    metrics: dict[str, float]
    """The metrics block as printed, lower-cased names; always holds the tag's metric."""
    evaluator_hash: str | None
    gpu_class: str
    log_tail: str
    metric: float
    """NaN if the tag's evaluator still has to measure it."""
    reported: float | None = None
    """The tag's metric as the script printed it."""
    score: Score = "reported"
    """trusted: the tag's evaluator measured the metric; reported: the script printed it."""
    time: TimeSpent | None = None
    """Training time, as the worker measured it."""
    hung: bool = False
    """It did not end after its result, so the worker ended it."""
    hidden: Mapping[str, float] = field(default_factory=dict, repr=False)
    """Numbers of hidden splits by name, for the lab alone. A split that could not be measured is not among them."""


@dataclass(frozen=True)
class FailedTraining:
    """The run ended without a usable metric."""

    kind: FailureKind
    error: str
    """Why, with the last lines of its log; written by the training script, so untrusted."""


@dataclass(frozen=True)
class HaltedRun:
    """The run was ended by an order of the lab."""

    order: Literal["stop", "lost"]


TrainingResult = TrainedRun | FailedTraining | HaltedRun


@dataclass(frozen=True)
class Unfit:
    """No run can begin on this device now. The worker is at fault, not the experiment."""

    reason: str


class Watcher(Protocol):
    """The lab's side of a running attempt, for the runner."""

    async def built(self, source: Source) -> Order:
        """Store which code the attempt trains, before it runs; `lost`: the lease is gone."""
        ...

    async def tick(self, metric: float, progress: float) -> Order | Extension:
        """Store one tick: reported by the script, or printed by it if the job's `tick_source` is `stdout`."""
        ...

    async def poll(self) -> Order:
        """Renew the lease and ask for orders; called every half second."""
        ...

    async def tail(self, text: str) -> None:
        """Store the newest lines of the log, at most every two seconds."""
        ...


class RunLease(Watcher, Protocol):
    """The lab's side of an attempt, from its beginning until its GPU is given back. Every step may be repeated."""

    @property
    def lease_s(self) -> float:
        """Seconds of silence after which the lab ends the lease."""
        ...

    async def begin(self, runner: str, before: Footprint | None) -> bool:
        """Begin the attempt; False: another process has begun it, or the lease is over."""
        ...

    async def report(self, function: str, request: Mapping[str, Any]) -> str:
        """Call the function that ends the run; answers the status. Raises Invalid, Conflict: a refusal."""
        ...

    async def hand_back(self, reason: str) -> None:
        """Give up the attempt before it begins, because its GPU is sick. It waits for another GPU."""
        ...

    async def end(self, *, proven: bool) -> None:
        """Give the GPU back after the run. Its keeper has to prove it empty, unless it is `proven`."""
        ...


@runtime_checkable
class Runner(Protocol):
    """A worker's ability to run one training attempt to its end."""

    @property
    def gpu_id(self) -> str: ...

    @property
    def name(self) -> str:
        """`<host>:<pid>:<start time>` of this process, by which its keeper sees whether it lives."""
        ...

    async def survey(self) -> Footprint | Unfit | None:
        """Survey the device before a run: its memory use (None for a CPU slot), or why it is unfit."""
        ...

    async def run(self, job: TrainingJob, watcher: Watcher, *, metric: str) -> TrainingResult:
        """Check out, train, parse; no process of the attempt is left. Raises for Nightjar's own faults only."""
        ...

    async def is_empty(self, job: TrainingJob, before: Footprint | None) -> bool:
        """Kill the attempt's remaining processes; True: they are gone and the memory is as before."""
        ...


@dataclass(frozen=True)
class HealthSample:
    """One sample of a GPU or CPU slot; None: not measured. `error` says why there are no numbers.

    Memory and utilization of a CPU slot are those of its own processes; one busy core is 100 %.
    """

    temperature_c: float | None = None
    memory_used_mb: float | None = None
    memory_total_mb: float | None = None
    utilization_percent: float | None = None
    power_w: float | None = None
    throttle: str | None = None
    ecc: int | None = None
    """Uncorrected ECC errors."""
    xid: int | None = None
    """The newest Xid error of the last minutes for which the GPU, not a program, is to blame."""
    processes: dict[int, float] | None = None
    """MiB of its memory by process id; None where the driver does not list processes."""
    error: str | None = None


# -- One attempt, from the survey of its GPU until the GPU is given back.

log = logging.getLogger(__name__)
T = TypeVar("T")
Report = tuple[str, Mapping[str, Any]]
"""A function, and the request that it is called with."""

DELIVERY_PATIENCE_S = 600.0
"""Seconds that a finished run tries to report its result while the lab does not answer."""


async def attempted(job: TrainingJob, lease: RunLease, runner: Runner, metric: str) -> str:
    """Train under this lease and report the result; answers the outcome of the attempt."""
    name = job.experiment_id
    before = await runner.survey()
    if isinstance(before, Unfit):
        reason = before.reason
        log.error("%s is unfit for %s: %s", runner.gpu_id, name, reason)
        await delivered(lambda: lease.hand_back(reason))
        return "handed back"
    if not await lease.begin(runner.name, before):
        log.info("%s attempt %d is another's, or over: nothing to do", name, job.attempt)
        return "refused"
    log.info("%s attempt %d begins on %s", name, job.attempt, runner.gpu_id)
    async with renewing(lease, name):
        result = await runner.run(job, lease, metric=metric)
    # at once: the next run waits for both
    outcome, proven = await asyncio.gather(
        delivered(lambda: hand_in(result, job, lease)), runner.is_empty(job, before)
    )
    log.info("%s attempt %d ended: %s", name, job.attempt, outcome)
    if not proven:
        log.error("%s attempt %d left something on its GPU: it is not lent yet", name, job.attempt)
    if outcome != "lost":  # else the GPU is no longer ours
        await delivered(lambda: lease.end(proven=proven))
    return outcome


async def hand_in(result: TrainingResult, job: TrainingJob, lease: RunLease) -> str:
    """Report the result through the functions that agents use; answers the experiment's status."""
    if isinstance(result, HaltedRun) and result.order == "lost":
        return "lost"
    try:
        return await lease.report(*report_of(result, job))
    except Invalid as problem:
        return await lease.report(*report_of(FailedTraining("other", problem.detail), job))
    except Conflict as problem:
        log.info("%s attempt %d: %s", job.experiment_id, job.attempt, problem.detail)
        return "late"


def report_of(result: TrainingResult, job: TrainingJob) -> Report:
    who = {"experiment_id": job.experiment_id, "attempt": job.attempt, "fence": job.fence}
    match result:
        case TrainedRun():
            finite = {name: value for name, value in result.metrics.items() if math.isfinite(value)}
            measures = {name: finite[name] for name in MEASURES if finite.get(name, -1.0) >= 0}
            return "experiment::complete", {
                **who,
                **measures,
                "val_bpb": result.metric,
                "metrics": dict(list(finite.items())[:200]),
                "evaluator_hash": result.evaluator_hash,
                "gpu_class": result.gpu_class,
                "budget_seconds": job.budget_s,
                "score": result.score,
                "reported": result.reported,
                "hung": result.hung,
                **(result.time.model_dump() if result.time else {}),
                **result.hidden,
            }
        case FailedTraining():
            # names of files are any bytes
            error = result.error.encode("utf-8", "backslashreplace").decode()
            return "experiment::crash", {**who, "kind": result.kind, "error": error}
        case HaltedRun():
            return "gpu::stopped", who


@asynccontextmanager
async def renewing(lease: RunLease, name: str) -> AsyncIterator[None]:
    """Renew the lease during the run: a checkout may take longer than a lease, and the runner does not poll then."""
    over = asyncio.Event()
    renewal = asyncio.create_task(_renew_until(over, lease, name))
    try:
        yield
    finally:
        over.set()
        await renewal


async def _renew_until(over: asyncio.Event, lease: RunLease, name: str) -> None:
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(lease.lease_s / 4):
                await over.wait()
                return
        try:
            await lease.poll()  # the runner asks for orders itself
        except Unavailable as problem:
            log.warning("the lease of %s is not renewed: %s", name, problem.detail)
        except Exception:  # a fault beside the run must not end it
            log.exception("the lease of %s is not renewed", name)


async def delivered(step: Callable[[], Awaitable[T]]) -> T:
    """Repeat an idempotent step while the lab does not answer."""
    give_up = asyncio.get_running_loop().time() + DELIVERY_PATIENCE_S
    pause = 0.2
    while True:
        try:
            return await step()
        except Unavailable as problem:
            if asyncio.get_running_loop().time() + pause > give_up:
                raise
            log.warning("%s; handing in again in %.1f s", problem.detail, pause)
            await asyncio.sleep(pause)
            pause = min(pause * 2, 10.0)
