"""GPUs and CPU slots, and the lease on each."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from state.records.base import Finite, Record

Transport = Literal["redis", "http"]
GpuStatus = Literal["idle", "training", "draining", "offline", "unhealthy"]


def _by_pid(processes: Any) -> Any:
    """Process ids are texts in JSON."""
    if not isinstance(processes, dict):
        return processes
    return {
        int(pid) if isinstance(pid, str) and pid.isdecimal() else pid: mb for pid, mb in processes.items()
    }


class Footprint(Finite):
    """Contents of a GPU's memory at one moment."""

    used_mb: float
    processes: Annotated[dict[int, float] | None, BeforeValidator(_by_pid)] = None
    """MiB by process id, of any owner; None where the driver does not list processes."""


class GpuState(Record):
    """A GPU or CPU slot, as far as those who wait for one need to know it."""

    gpu_id: str
    gpu_name: str
    of_agent: bool = False
    """The owner is an agent that trains on it itself: it is lent to that agent only, and no worker serves it."""
    status: GpuStatus = "idle"
    sick: str | None = None
    """Why it is unhealthy."""
    drained: bool = False
    """An operator took it out: it takes no more runs."""
    leaving: str | None = None
    """The worker that ends after the present run: its keeper's name, or the caller's where it has none."""
    heartbeat_at: float = 0.0
    tripped: str | None = None
    """Why its breaker is open: code failed on it that ran before; it gets no run until `tripped_until`."""
    tripped_until: float | None = None
    scripts: list[str] = Field(default_factory=lambda: ["train.py"])
    """Files that its train command may run: the first that exists has its constants set. Empty: not known."""
    labels: dict[str, str] = Field(default_factory=dict)
    transport: Transport = "redis"
    """Source of its worker's runs: a queue of RQ, or pool::next."""
    owner: str | None = None
    """Owner of the token that registered it; None: the lab's own worker."""

    @property
    def is_confined(self) -> bool:
        """A slot of the lab's own whose runs touch only their own files: a hidden split stays hidden there."""
        is_own = self.owner is None and not self.of_agent and self.transport == "redis"
        return is_own and self.labels.get("isolation") in ("landlock", "bwrap")


class Gpu(GpuState):
    """The GPU with its device, and the lease on it."""

    gpu_index: int
    vram_mb: float
    uuid: str | None = None
    host: str | None = None
    boot_id: str | None = None
    offline: bool = False
    """No heartbeat came for too long."""
    unproven: bool = False
    """A run on it is over, and its keeper has not yet proven that nothing of it is left there."""
    footprint: Footprint | None = None
    """Memory before the newest run, until the end of that run is proven. None for a CPU slot."""
    keeper: str | None = None
    """`<host>:<pid>:<start time>` of its process. None if the worker has not named it."""
    registered_at: float = 0.0
    idle_since: float | None = None
    holder: str | None = None
    attempt: int = 0
    fence: int = 0
    leased_at: float | None = None
    lease_expires_at: float | None = None
    deadline: float | None = None
    """When the lab ends the lease of a run, however often it is renewed. The run's extension comes on top."""
    runner: str | None = None
    """`<host>:<pid>:<start time>` of the process that runs the attempt; none for an agent's own lease."""
    consecutive_crashes: int = 0
    trips: int = 0
    """Openings of the breaker since the last success of a run."""
    health: dict[str, Any] | None = None
    sampled_at: float | None = None
    good_samples: int = 0
