"""A worker of a swarm: a machine that pulls configs over HTTP."""

from __future__ import annotations

from state.records.base import Record


class SwarmWorker(Record):
    """One worker; its name is that of the token that it was given."""

    worker_id: str
    number: int
    """Number in the order of registration, from 1."""
    tag: str
    gpu_type: str
    """Class of its GPU: runs are ranked among those of the same class."""
    baseline_bpb: float
    """Value of its unchanged train.py."""
    contact: str | None = None
    """Contact of its owner."""
    token_id: str
    joined_at: float
    run_id: str | None = None
    """The run that it was handed out and that has not ended; None: it has none."""
    active: int = 0
    """Runs that were handed out to it, those of its own choice too, and have not ended."""
    population_id: str | None = None
    """The population that it was given a run of last."""
    compared: int = 0
    """Compared runs since its last one of a reference config; cells of tests count, too."""
    runs: int = 0
    """Runs that ended with a value, or were stopped, and were not retracted."""


class HeardWorker(SwarmWorker):
    """A worker with when it was last heard of, in seconds since 1970."""

    heard_at: float


class Leader(SwarmWorker):
    """A worker with its best run."""

    best_delta_bpb: float
    best_config_delta: dict[str, object] = {}
