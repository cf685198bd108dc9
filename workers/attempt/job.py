"""One attempt at one experiment for the runner: what it is to train, how it ended, and what it is told meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from functions.formats.metrics_block import FailureKind
from functions.kernel.lanes import Extension, Order, Source
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
