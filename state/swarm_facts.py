"""Facts of a swarm for a decision. Values only, no IO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from state.policy import Policy
from state.records import Best, Dimension, Experiment, Record, Status, SwarmWorker, Tag


@dataclass(frozen=True)
class SwarmFacts:
    now: float
    tag: Tag
    policy: Policy
    policy_version: int
    dimensions: Sequence[Dimension]
    dimensions_version: int
    """0: nothing was defined that a swarm may vary."""
    active_workers: int
    best: Best | None
    populations: Sequence[str]
    """Their texts; empty: everyone is in one."""
    in_flight: Mapping[str, int]
    """Runs by population that workers were handed out and have not ended, those of their own choice aside."""
    newest_at: float
    """When its newest finished run ended; when the tag was opened, where none has."""


@dataclass(frozen=True)
class NextFacts(SwarmFacts):
    worker: SwarmWorker
    run: Experiment | None
    """Its newest open run, by the worker's record."""
    waiting_for: str
    """The population that `waiting` is of."""
    waiting: Sequence[str]
    """Configs that wait for workers, those that came back from a lost one first."""
    retests: Sequence[Experiment]
    """Retests that wait for a worker, the oldest keep's first."""
    best_config: Mapping[str, Any] = field(default_factory=dict)
    """Config of the tag's best; empty if it has none."""


class Observed(Record):
    """A run of a swarm as the next configs see it."""

    experiment_id: str
    status: Status
    config_delta: dict[str, Any] = {}
    delta_bpb: float | None = None
    fingerprint: str | None = None
    population_id: str | None = None


@dataclass(frozen=True)
class RefillFacts(SwarmFacts):
    observed: Sequence[Observed]
    """The newest finished, the newest stopped and the newest running runs."""
    waiting: Mapping[str, Sequence[str]]
    """Configs that wait, by population."""
    best_config: Mapping[str, Any]
    """Config of the tag's best, if it was read."""


@dataclass(frozen=True)
class Replenishing:
    """Changes of a population's waiting configs, as texts."""

    dropped: Sequence[str]
    added: Sequence[tuple[str, float]]
    """With their priority, 0 to 1."""


class ActiveRun(Record):
    """A run that its worker has not ended."""

    experiment_id: str
    worker_id: str | None = None
    last_progress: float | None = None
    last_metric: float | None = None
    started_at: float | None = None
    budget_s: float | None = None
    extended_s: float | None = None
    population_id: str | None = None
    stopping: bool = False


@dataclass(frozen=True)
class BucketPool:
    """Values of all runs at a bucket."""

    runs: int
    percentiles: Mapping[int, float]
    """The 25th, 50th, 75th and 90th of the values. Empty without runs."""
