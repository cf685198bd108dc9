"""Facts of a swarm and of its proposed dimensions for a decision, and the changes that it makes. No IO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import Field

from state.policy import Policy
from state.records import (
    Best,
    Dimension,
    Experiment,
    Measured,
    ProposedDimension,
    Record,
    Status,
    SwarmWorker,
    Tag,
)


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
    config_delta: dict[str, Any] = Field(default_factory=dict)
    delta_bpb: float | None = None
    fingerprint: str | None = None
    population_id: str | None = None


class JudgedRun(Observed, Measured):
    """The same with its judged value."""


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


RESULTS: Final[Sequence[Status]] = ("keep", "discard", "stopped")
"""Statuses of runs with a value, or stopped for their value. A crash says nothing about a config."""


class EndedResult(Record):
    """A run that ended, or was stopped."""

    experiment_id: str
    status: Status
    finished_at: float | None = None
    baseline_bpb: float | None = None


class KeptRun(Measured):
    """A keep that beat the best of its time."""

    experiment_id: str
    number: int
    finished_at: float | None = None
    config_delta: dict[str, Any] = Field(default_factory=dict)


class TriedRun(Measured):
    """A run that was handed out since a trial began, and has ended."""

    experiment_id: str
    number: int
    status: Status
    config_delta: dict[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True)
class TrialFacts:
    """A tag with its proposed dimensions, and how its search goes."""

    now: float
    tag: Tag
    policy: Policy
    dimensions: Sequence[Dimension]
    best: Best | None
    proposals: Sequence[ProposedDimension]
    """In the order of proposal."""
    cycle: int
    """Stall cycles that have begun."""
    cycle_at: int
    """Results that the tag had when the newest one began."""
    asked: int | None
    """The stall cycle of the last request for dimensions. 0: the start; None: no request yet."""
    ended: Sequence[EndedResult]
    """The newest runs that finished, and the newest that were stopped; each newest first."""
    keeps: Sequence[KeptRun]
    """The best ones, best first."""


@dataclass(frozen=True)
class Following:
    """Changes of a tag's proposed dimensions."""

    proposals: Sequence[ProposedDimension] = ()
    cycle: int = 0
    cycle_at: int = 0
    wanted: Mapping[str, Any] | None = None
    """Data of the event that asks for dimensions; None: none are asked for."""
    dimensions: Sequence[Dimension] | None = None
    defined: Mapping[str, Any] = field(default_factory=dict)
    """Data of the event."""
    told: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    """Data of further events by type, and by dimension."""
