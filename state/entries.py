"""How an experiment enters the lab: what that is decided on, and what is decided; values only, no IO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from state.policy import Policy
from state.records import Experiment, GpuState, Idea, Record, Selection, Tag, Trace


class Later(Protocol):
    """A number that is known once a change is committed."""

    value: int


class Parent(Record):
    """An experiment that is named as a parent."""

    tag: str
    retest_of: str | None = None
    outdated: bool = False
    trace_id: str | None = None


@dataclass(frozen=True)
class EntryFacts:
    """What is known of a tag, and of what an idea names, as it is about to enter."""

    now: float
    tag: Tag
    policy: Policy
    policy_version: int
    crashes: int = 0
    """In a row."""
    first: Experiment | None = None
    """What the same request registered before."""
    parents: Mapping[str, Parent] = field(default_factory=dict)
    """Those that the idea names, as far as there are any."""
    epoch: int = 1
    selection: Selection | None = None
    selection_ends: float | None = None
    """When its lease ends; None: it is not open."""
    branch: Trace | None = None
    """Where traces grow in parallel and nothing was selected: that of the first parent named, else of the best."""
    slots: Sequence[GpuState] = ()
    """Every GPU; none where the idea is not to be trained."""
    best: Experiment | None = None
    """The tag's best, where its policy may refuse all else."""
    tried: Mapping[str, str | None] = field(default_factory=dict)
    """Who tried its code first, by the code's names. The first of these is the surest."""
    tip: str | None = None
    """What finished last in the tag, or else its baseline."""
    has_patch: bool = False
    """The lab has its patch."""
    of_tag: Mapping[str, str | None] = field(default_factory=dict)
    """The tag's fields as they are stored: what it may take of its budget, and whether its experiments wait aside."""

    @property
    def duplicate_of(self) -> str | None:
        """The first experiment with the same patch or commit."""
        return next(
            (first for name, first in self.tried.items() if first and not name.startswith("commit:")), None
        )


@dataclass(frozen=True)
class Entry:
    """An idea that may enter."""

    idea: Idea
    follows_tip: bool = False
    """Its parent is the tip of the tag's one line."""


@dataclass(frozen=True)
class Run:
    """What is asked of a worker."""

    priority: int
    budget_s: float
    timeout_s: float
    pinned_gpu: str | None = None
    config_delta: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Entered:
    """An experiment that is registered once its change is committed."""

    tag: str
    handed_out: Later
    duplicate_of: str | None
    parent_ids: Sequence[str]
    counts: Sequence[Later] = ()
    """Experiments in the wait queue up to it."""

    @property
    def position(self) -> int:
        """In the wait queue, counted from 1."""
        return sum(count.value for count in self.counts)

    @property
    def number(self) -> int:
        return self.handed_out.value

    @property
    def experiment_id(self) -> str:
        return f"{self.tag}-{self.number}"


HeldLease = Literal["used", "returned"]
"""What becomes of the lease that an experiment holds as it is queued."""


@dataclass(frozen=True)
class Queued:
    """An experiment that is to be trained, once its change is committed."""

    status: Literal["queued", "leased"]
    attempt: int
    counts: Sequence[Later] = ()
    """Experiments in the wait queue up to it."""

    @property
    def position(self) -> int:
        """In the wait queue, counted from 1; 0 where it does not wait."""
        return sum(count.value for count in self.counts)
