"""What a GPU's heartbeat renews, and what its sender has to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from state.records import Experiment, Gpu


@dataclass(frozen=True)
class Beat:
    """What follows from one heartbeat."""

    renewed: Experiment | None
    """The experiment whose lease is prolonged."""
    action: Literal["stop", "drain", "prove"] | None


def beat(gpu: Gpu, holder: Experiment | None, fence: int | None) -> Beat:
    """A heartbeat of `gpu`, which `holder` has; a fence speaks for the lease on it, and a wrong one has to stop."""
    renewed = holder if fence is not None and fence == gpu.fence else None
    if fence is not None and renewed is None:
        return Beat(None, "stop")
    if renewed is not None and renewed.stopping:
        return Beat(renewed, "stop")
    return Beat(renewed, "prove" if gpu.unproven else "drain" if gpu.drained else None)
