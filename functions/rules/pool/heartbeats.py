"""What a GPU's heartbeat renews, and what its sender has to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from state.leases import Holding
from state.records import OPEN, Experiment


@dataclass(frozen=True)
class Beat:
    """What follows from one heartbeat."""

    renewed: Experiment | None
    """The experiment whose lease is prolonged."""
    action: Literal["stop", "drain", "prove"] | None


def beat(held: Holding, fence: int | None) -> Beat:
    """A heartbeat of a GPU; a fence speaks for the lease on it, and a wrong one has to stop.

    So has the right one when its experiment is over or is to stop, or when all leases of its tag were called in.
    """
    gpu, holder = held.gpu, held.experiment
    renewed = holder if fence is not None and fence == gpu.fence else None
    if fence is not None and (renewed is None or renewed.status not in OPEN):
        return Beat(None, "stop")
    if renewed is not None and (renewed.stopping or gpu.fence <= held.stop_fence):
        return Beat(renewed, "stop")
    return Beat(renewed, "prove" if gpu.unproven else "drain" if gpu.drained else None)
