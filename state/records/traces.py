"""Branches of a tag's experiments, and what each experiment is made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from state.records.base import Finite, Record

SelectionKind = Literal["new_root", "extend", "branch", "merge"]


SelectionStatus = Literal["open", "committed", "released", "expired"]


TraceStatus = Literal["pending", "live", "merged", "dead", "closed"]
"""`pending`: its first experiment is not finished."""


class SelectionOrigin(Finite):
    """What an experiment is made from."""

    kind: SelectionKind
    trace_id: str
    expected_tip: str | None = None
    """The trace's tip at that time: the new node becomes the tip if it still is."""
    base_experiment_id: str | None = None
    """The best kept ancestor, the code to build on; None: nothing was kept yet."""
    base_commit_sha: str | None = None
    sources: dict[str, str] = Field(default_factory=dict)
    """Traces that a kept merge ends, each with its tip at that time."""
    combines: list[str] | None = None
    """Bases of the merged traces, whose changes are combined."""
    scheduler: str | None = None
    """Scheduler that chose the trace; None: the caller named it."""
    reason: str = ""


class SelectionRecord(SelectionOrigin):
    """Origin of an experiment, chosen once and never changed."""

    selection_id: str | None = None
    """None without a selection: the named parent, else the branch of the best."""
    select_seq: int | None = None
    """Number of selections of its tag, with it."""
    parent_ids: list[str]
    epoch: int = 1


class Selection(SelectionOrigin, Record):
    """A lease on what one experiment is made from: it leaves `open` exactly once."""

    selection_id: str
    tag: str
    select_seq: int
    epoch: int
    parent_ids: list[str] = Field(default_factory=list)
    local_selection: list[int] = Field(default_factory=list)
    scores: dict[str, float] | None = None
    agent: str | None = None
    owner: str | None = None
    """Owner of the selecting token; None: anybody."""
    status: SelectionStatus = "open"
    lease_s: float = 900.0
    created_at: float
    lease_expires_at: float
    """Before this it has to be registered, or renewed."""
    finished_until: int = 0
    """Number of finished experiments of the tag then. Neighbours are shown up to there."""
    experiment_id: str | None = None
    """Experiment registered with it. It stays open as long as the experiment."""
    ended_at: float | None = None


class Trace(Record):
    """A branch of the tag's experiments that grows by itself.

    `tip` is the last committed node, failures too; `base` is the best that it has kept, the code to build on.
    """

    trace_id: str
    tag: str
    number: int
    status: TraceStatus
    kind: SelectionKind = "new_root"
    """Origin of the trace."""
    origin: str | None = None
    """The node that a branch began at."""
    owner: str | None = None
    """Owner of the token that began it; None: anybody."""
    root: str | None = None
    tip: str | None = None
    base: str | None = None
    base_commit_sha: str | None = None
    length: int = 0
    """Nodes committed."""
    kept: int = 0
    selections: int = 0
    """Number of selections."""
    in_flight: int = 0
    """Open selections on it."""
    scores: str = ""
    """Scores of its newest nodes, oldest first; lower is better, `x` for a crash."""
    best_score: float | None = None
    crashes_in_a_row: int = 0
    since_best: int = 0
    """Nodes since its best value."""
    virtual_time: int = 0
    """When its next turn comes, in the tag's virtual time; see `functions/branches/rules/schedulers.py`."""
    last_selected: int = 0
    """`select_seq` of its newest selection."""
    priority: float = 0.0
    version: int = 0
    """Raised with every commit and change of status."""
    created_at: float
    ended_at: float | None = None
    reason: str | None = None
    """Why it ended."""
    merged_into: str | None = None

    @property
    def grows(self) -> bool:
        """It has not ended."""
        return self.status in ("live", "pending")


@dataclass(frozen=True)
class Forest:
    """The traces of a tag that may be selected, as they were read."""

    tag: str
    select_seq: int = 0
    epoch: int = 1
    virtual_time: int = 0
    last_trace: int = 0
    branches: int = 0
    """Number of traces, ended ones too, the tag's own line aside."""
    places: int = 0
    """Places for traces that are taken: by live ones and pending ones."""
    growing: tuple[Trace, ...] = ()
    """Live and pending ones, by number."""

    @property
    def live(self) -> list[Trace]:
        """Traces that may grow."""
        return [trace for trace in self.growing if trace.status == "live"]


@dataclass(frozen=True)
class ForestRecords:
    """Every trace of a tag, and what is selected on them."""

    traces: Sequence[Trace]
    live: frozenset[str]
    """The index of those that grow."""
    made_for: Mapping[str, frozenset[str]]
    """The index of experiments of each trace."""
    open: Mapping[str, float]
    """Open selections with the ends of their leases."""
    selections: Mapping[str, Selection]
    """Their records."""
