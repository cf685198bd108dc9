"""What was read of a tag's proposed dimensions for a decision, and what a decision changes; values only, no IO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from state.policy import Policy
from state.records import Best, Dimension, Measured, ProposedDimension, Record, Status, Tag

RESULTS: Final[Sequence[Status]] = ("keep", "discard", "stopped")
"""Statuses of a run that has a value, or was stopped for it: a crash says nothing of a config."""


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
    dimensions_version: int
    best: Best | None
    proposals: Sequence[ProposedDimension]
    """In the order in which they came in."""
    version: int
    """Counts the changes of the proposals and of the stall cycles."""
    cycle: int
    """Stall cycles that have begun."""
    cycle_at: int
    """Results that the tag had when the newest one began."""
    asked: int | None
    """The stall cycle in which dimensions were asked for last, 0: at the start; None: they never were."""
    ended: Sequence[EndedResult]
    """The newest runs that finished, and the newest that were stopped; each newest first."""
    keeps: Sequence[KeptRun]
    """The best ones, best first."""


@dataclass(frozen=True)
class Following:
    """What changes of a tag's proposed dimensions."""

    proposals: Sequence[ProposedDimension] = ()
    """Those that have changed."""
    cycle: int = 0
    cycle_at: int = 0
    asked: int | None = None
    wanted: Mapping[str, Any] | None = None
    """Data of the event that asks for dimensions; None: none are asked for."""
    dimensions: Sequence[Dimension] | None = None
    """The tag's dimensions from now on; None: they stay."""
    defined: Mapping[str, Any] = field(default_factory=dict)
    """Data of the event that says so."""
    told: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    """Data of further events by type, and by dimension."""
