"""The pool as it was read for a decision; values only, no IO."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from state.decided import Decided
from state.policy import Policy
from state.records import Experiment, Gpu, GpuStatus, Tag


@dataclass(frozen=True)
class GpuLease:
    """A GPU lent to one attempt."""

    gpu_id: str
    gpu_index: int
    fence: int
    expires_at: float
    decided: Decided | None
    """Decided values of the experiment; None if it already had the GPU."""


@dataclass(frozen=True)
class Roster:
    """GPUs at one moment of Redis' clock."""

    now: float
    gpus: Sequence[Gpu]


@dataclass(frozen=True)
class Holding:
    """A GPU, and the experiment that holds it."""

    now: float
    """Redis' clock."""
    gpu: Gpu
    experiment: Experiment | None
    policy: Policy | None
    """Policy of the experiment's tag."""
    stop_fence: int = 0
    """Runs of its tag under a lease with this fence or an older one have to stop."""


@dataclass(frozen=True)
class GpuRequest:
    """An experiment that needs a GPU, and all GPUs."""

    now: float
    """Redis' clock."""
    experiment: Experiment
    tag: Tag
    policy: Policy
    held: Gpu | None
    """The GPU that the experiment holds already."""
    idle: Sequence[Gpu]
    """Longest idle first."""
    registered: int
    """GPUs of the lab, whatever their status."""


@dataclass(frozen=True)
class Line:
    """Experiments that wait for idle GPUs."""

    now: float
    """Redis' clock."""
    idle: Sequence[Gpu]
    """Longest idle first; read after the experiments."""
    waiting: Sequence[Experiment]
    """The head of the queues, in one order."""
    starting: Sequence[Experiment]
    """Leased experiments whose worker should have begun by now."""
    baselines: Sequence[str]
    """Tags that wait for the end of their baseline."""


@dataclass(frozen=True)
class Flagged:
    """A GPU after its flags were changed."""

    status: GpuStatus
    holder: str | None
