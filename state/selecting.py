"""Values of a selection: the request, the facts and the decision. No IO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from state.facts import Spread
from state.policy import Policy
from state.records import Best, Experiment, Forest, Selection, SelectionKind, Tag, Trace

Intent = Literal["auto", "new_root", "extend", "branch", "merge"]
Selector = Literal["explicit", "best_base", "near_miss", "nodes"]
Why = Literal["no_slot", "all_busy", "paused", "budget"]


@dataclass(frozen=True)
class Wish:
    tag: str
    agent: str | None = None
    owner: str | None = None
    """Owner of the calling token; None: anybody."""
    intent: Intent = "auto"
    trace_id: str | None = None
    parent_ids: Sequence[str] = ()
    selector: Selector = "best_base"
    """How a merge finds its parts."""
    sources: Sequence[str] = ()
    """Traces to merge, where the caller names them."""
    into: str | None = None
    """The trace that the merged node goes on in; None: that of the best of them."""

    @property
    def named_trace(self) -> str | None:
        """The trace that has to grow."""
        return self.into or self.trace_id


@dataclass(frozen=True)
class SelectionFacts:
    now: float
    tag: Tag
    policy: Policy
    policy_version: int
    forest: Forest
    open_selections: int
    free_at: float | None = None
    """When the first lease of the tag ends, if its holder stays silent."""
    first: Selection | None = None
    best: Best | None = None
    """Best of the tag; read for a merge of near misses."""
    gpus: Sequence[tuple[str, float]] = ()
    """Status and last heartbeat of every GPU; read where the policy sets no max_parallel."""
    nodes: Mapping[str, Experiment] = field(default_factory=dict)
    """The parents that the caller names."""
    bases: Mapping[str, Experiment] = field(default_factory=dict)
    """The best kept one at or above each parent that the caller names; one without any is missing."""
    traces: Mapping[str, Trace] = field(default_factory=dict)
    """Traces that the caller names, and those of the parents."""
    kept: Sequence[Experiment] = ()
    """The newest, where a trace may be opened on one."""
    stood_on: frozenset[str] = frozenset()
    """Nodes that the newest traces, ended ones too, have for their base or began at."""
    values: Mapping[str, float] = field(default_factory=dict)
    """Values of the traces' bases, for a merge."""
    noise: Spread = field(default_factory=Spread)
    """Noise on the tag's main class of GPU; read for a merge of near misses."""
    near: Sequence[Experiment] = ()
    """Near misses of the tag's best for a merge, best first."""
    combined: Sequence[Sequence[str]] = ()
    """Parents of the newest experiments, for a merge."""


@dataclass(frozen=True)
class Needs:
    gpus: bool = False
    scheduler: str | None = None
    """Name of the scheduler to load; None: no turns."""
    kept: bool = False
    """The newest keeps, and the nodes that traces have for their base or began at."""
    traces: Sequence[str] = ()
    values: Sequence[str] = ()
    """Nodes."""
    near: tuple[float, float] | None = None
    """Least and largest score of the near misses."""


@dataclass(frozen=True)
class SelectionDecision:
    """A selection to be made, with what the decision used: the move finds that unchanged, or does nothing."""

    tag: str
    kind: SelectionKind
    trace_id: str
    fields: Mapping[str, Any]
    """Values of the selection, besides those of its trace's tip and base."""
    lease_s: float
    policy_version: int
    most_open: int
    opens: int | None = None
    """The number of the trace that is opened for it; None: the trace is there."""
    origin: str | None = None
    """The node that the opened trace begins at."""
    turn: tuple[int, int] | None = None
    """Virtual times of the trace and of its forest after this; None in single mode, where nothing takes turns."""
    select_seq: int | None = None
    """The selection before; None in single mode, where none depends on another."""
    places: int | None = None
    """Live and pending traces, where the room for one more decided."""
    tip: str | None = None
    """Tip of its trace, if the parents depend on it."""
    most_in_flight: int | None = None
    """Open selections of the trace."""


@dataclass(frozen=True)
class SelectionWait:
    """There is nothing to select now."""

    reason: Why
    retry_after: float
