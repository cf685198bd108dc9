"""The pool as it was read for a decision, and a renewed lease; values only, no IO."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from state.policy import Policy
from state.records import Experiment, Gpu, Tag


@dataclass(frozen=True)
class GpuLease:
    """A GPU lent to one attempt."""

    gpu_id: str
    gpu_index: int
    fence: int
    expires_at: float


@dataclass(frozen=True)
class Holding:
    """A GPU, and the experiment that holds it."""

    now: float
    gpu: Gpu
    experiment: Experiment | None = None
    policy: Policy = field(default_factory=Policy)
    """Policy of the experiment's tag."""
    stop_fence: int = 0
    """Runs of its tag under a lease with this fence or an older one have to stop."""
    stored: Mapping[str, str] = field(default_factory=dict)
    """The GPU as it is stored."""
    newest: Sequence[str] = ()
    """Newest entry of its history, if that was read."""


@dataclass(frozen=True)
class GpuRequest:
    """An experiment that needs a GPU, and all GPUs."""

    now: float
    experiment: Experiment
    tag: Tag
    policy: Policy
    held: Gpu | None
    """The GPU that the experiment holds already."""
    idle: Sequence[Gpu]
    """Longest idle first."""
    registered: int


@dataclass(frozen=True)
class Line:
    now: float
    idle: Sequence[Gpu]
    """Longest idle first; read after the experiments."""
    waiting: Sequence[Experiment]
    """The head of the queues, in one order."""
    starting: Sequence[Experiment]
    """Leased experiments whose worker should have begun by now."""
    baselines: Sequence[str]
    """Tags that wait for the end of their baseline."""


@dataclass(frozen=True)
class Renewal:
    """A lease that goes on."""

    fields: Mapping[str, str]
    """Of the GPU."""
    expires_at: float
    deadline: float
    """The commit must not come later."""


def renewal(
    gpu: Gpu, now: float, lease_s: float, extended_s: float | None, *, stops: bool, least: float = 0.0
) -> Renewal | None:
    """The lease of a run, renewed; None where its deadline has come.

    It does not end before `least`, nor after its deadline, which the lab sets. A run that has to stop has one length
    of the lease for that. An extension comes on top of the stored deadline. A lease that an agent acquired for itself
    has none.
    """
    fields, deadline, ends = dict[str, str](), math.inf, now + lease_s
    if gpu.deadline is not None:
        deadline = gpu.deadline + (extended_s or 0.0)
        if stops and ends < deadline:
            deadline, fields["deadline"] = ends, f"{ends - (extended_s or 0.0):.6f}"
        if now >= deadline:
            return None
    expires_at = round(min(max(ends, least), deadline), 6)
    return Renewal(fields | {"lease_expires_at": f"{expires_at:.6f}"}, expires_at, deadline)
