"""Values of a tag's proposed dimensions: the facts for a decision, and the changes that it makes. No IO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from state.policy import Policy
from state.records import Best, Dimension, Measured, ProposedDimension, Record, Status, Tag

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
    config_delta: dict[str, Any] = {}


class TriedRun(Measured):
    """A run that was handed out since a trial began, and has ended."""

    experiment_id: str
    number: int
    status: Status
    config_delta: dict[str, Any] = {}


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
