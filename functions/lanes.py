"""What a lane provides: the protocols behind which a worker's own resources stand.

A handler that asks for one of these runs only in a process that provides it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

from pydantic import BaseModel

from functions.formats.metrics_block import FailureKind
from state.policy import TickSource
from state.records import Footprint, Score, TimeSpent

Order = Literal["continue", "stop", "lost"]
"""What the lab wants of a running attempt: go on, stop it, or drop it because the lease is gone."""


@dataclass(frozen=True)
class Extension:
    """The run goes on, and may take longer: the answer to a report of one of the best."""

    extra_s: float
    """Seconds beyond what it was given when it began, however often it is told."""
    budget_s: float
    """Seconds that it may train now, in all."""


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
    """As it was sent, against `base_commit`: for a clone that lacks the commit. What the clone has is trained as it
    is."""
    config_delta: dict[str, object] | None
    """Top-level constants of train.py to set, by name."""
    evaluator: str
    """Path of the trusted evaluator inside the repository (`prepare.py`)."""
    budget_s: float
    timeout_s: float
    seed: int | None = None
    traceparent: str | None = None
    evaluator_files: Sequence[str] = ()
    """Other files and folders that the score depends on: they are the base's, too."""
    evaluator_command: str | None = None
    """What measures the score after the training, from the base's files; None: the script prints it."""
    tick_source: TickSource = "report"
    """Where its ticks come from."""


@dataclass(frozen=True)
class Source:
    """The code that an attempt trains."""

    tree_id: str
    """The same for all code with the same files once its constants are set, whatever the seed."""
    patch: bytes | None
    """Against the tag's base commit, where none was sent, or one that makes other files."""
    differs: bool
    """The patch that was sent makes other files than the commit."""


@dataclass(frozen=True)
class Trained:
    """The run printed a finite metric, and ended by itself or hung."""

    metrics: dict[str, float]
    """The metrics block as printed, lower-cased names; always holds the tag's metric."""
    evaluator_hash: str | None
    gpu_class: str
    log_tail: str
    metric: float
    """NaN where the script has printed none, and the tag's evaluator is still to measure it."""
    reported: float | None = None
    """What the script printed of the tag's metric."""
    score: Score = "reported"
    """Whether the tag's evaluator measured the metric, or the script printed it."""
    time: TimeSpent | None = None
    """How long it trained, as the worker measured it."""
    hung: bool = False
    """It did not end after it had printed its result: the worker ended it."""


@dataclass(frozen=True)
class Failed:
    """The run ended without a usable metric."""

    kind: FailureKind
    error: str
    """Why, with the last lines of its log; written by the training script, so untrusted."""


@dataclass(frozen=True)
class Halted:
    """The run was ended by an order of the lab."""

    order: Literal["stop", "lost"]
    log_tail: str = ""


TrainingResult = Trained | Failed | Halted


@dataclass(frozen=True)
class Unfit:
    """No run can begin on this device now; a fault of the worker, never of an experiment."""

    reason: str


class Watcher(Protocol):
    """The lab's side of a running attempt, as the runner sees it."""

    async def built(self, source: Source) -> Order:
        """Store what code the attempt trains, before it runs; its answer is `lost` where the lease is another's."""
        ...

    async def tick(self, metric: float, progress: float) -> Order | Extension:
        """Store one tick of the script: what it has reported, and is answered this; or, where the job's `tick_source`
        is `stdout`, the loss and the share that it has printed."""
        ...

    async def poll(self) -> Order:
        """Renew the lease and ask for orders; called every half second."""
        ...

    async def tail(self, text: str) -> None:
        """Store the newest lines of the log, at most every two seconds."""
        ...


class Lease(Watcher, Protocol):
    """The lab's side of an attempt from its begin until its GPU is given back; every step may be repeated."""

    @property
    def lease_s(self) -> float:
        """Seconds without a sign of life after which the lab takes the lease back."""
        ...

    async def begin(self, runner: str, before: Footprint | None) -> bool:
        """Begin the attempt; False where another process has begun it, or the lease is over."""
        ...

    async def report(self, function: str, request: Mapping[str, Any]) -> str:
        """Call the function that a run ends with; answers the experiment's status.

        Raises:
            Invalid, Conflict: the function refuses it.
        """
        ...

    async def hand_back(self, reason: str) -> None:
        """Give up the attempt before it begins: its GPU is sick, and the attempt waits for another."""
        ...

    async def end(self, *, proven: bool) -> None:
        """Give the GPU back after the run; its keeper has to look where it is not `proven` empty."""
        ...


@runtime_checkable
class Runner(Protocol):
    """A worker's ability to run one training attempt to its end."""

    @property
    def gpu_id(self) -> str:
        """The GPU or CPU slot that it runs on."""
        ...

    @property
    def name(self) -> str:
        """`<host>:<pid>:<start time>` of this process: enough to see from beside it whether it still lives."""
        ...

    async def survey(self) -> Footprint | Unfit | None:
        """Look at the device before a run: what its memory holds (None for a CPU slot), or why it is unfit."""
        ...

    async def run(self, job: TrainingJob, watcher: Watcher, *, metric: str) -> TrainingResult:
        """Check the code out, train it, parse the result; leaves no process of the attempt alive.

        Never raises for what the script does; raises only what is a fault of Nightjar itself.
        """
        ...

    async def is_empty(self, job: TrainingJob, before: Footprint | None) -> bool:
        """Kill what is left of the attempt; True once its processes are gone and the memory is as it was before."""
        ...


@dataclass(frozen=True)
class Health:
    """One sample of a GPU; `error` says why there are no numbers. Absent is None, never 0."""

    temperature_c: float | None = None
    memory_used_mb: float | None = None
    memory_total_mb: float | None = None
    utilization_percent: float | None = None
    power_w: float | None = None
    throttle: str | None = None
    ecc: int | None = None
    """Uncorrected ECC errors."""
    xid: int | None = None
    """The newest Xid error of the last minutes that speaks of the GPU and not of a program on it."""
    processes: dict[int, float] | None = None
    """MiB of its memory by process id; None where the driver does not list processes."""
    error: str | None = None


@dataclass(frozen=True)
class Commission:
    """What an author is asked to write."""

    task: str
    """In a few sentences."""
    context: str
    """Computed findings as Markdown; what people or scripts wrote stands in it delimited as data."""


Draft = TypeVar("Draft", bound=BaseModel)
"""A form of `functions/formats/authored.py`, filled in."""


@runtime_checkable
class Author(Protocol):
    """A worker's ability to have a language model write."""

    @property
    def name(self) -> str:
        """The provider and the model, for people."""
        ...

    async def write(self, kind: type[Draft], commission: Commission) -> Draft | None:
        """Have a form filled in; takes up to NIGHTJAR_LLM_TIMEOUT_S, a repair of the reply included.

        None where nothing usable came, or the day's budget is used up: the log and the counters say why. Never
        raises for what the provider does.
        """
        ...
