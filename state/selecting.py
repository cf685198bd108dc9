"""Selecting, as values: what a caller asks for, the facts that it is decided by, and the decision; no IO."""

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
    """What a caller wants an experiment to be made from: the requests of trace::select and trace::merge."""

    tag: str
    agent: str | None = None
    owner: str | None = None
    """Whose token asks; None: nobody's in particular."""
    intent: Intent = "auto"
    trace_id: str | None = None
    parent_ids: Sequence[str] = ()
    selector: Selector = "best_base"
    """How a merge finds what it brings together."""
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
    """What a selection is decided by, read in two round trips."""

    now: float
    tag: Tag
    policy: Policy
    policy_version: int
    forest: Forest
    open_selections: int
    free_at: float | None = None
    """When the first lease of the tag ends, if its holder stays silent."""
    first: Selection | None = None
    """What the same request selected before."""
    best: Best | None = None
    """Of the tag; read for a merge of near misses."""
    gpus: Sequence[tuple[str, float]] = ()
    """Status and last heartbeat of every GPU; read where the policy sets no max_parallel."""
    nodes: Mapping[str, Experiment] = field(default_factory=dict)
    """The parents that the caller names."""
    bases: Mapping[str, Experiment] = field(default_factory=dict)
    """The best kept one at or above each parent that the caller names; one without any is missing."""
    traces: Mapping[str, Trace] = field(default_factory=dict)
    """Those that the caller names, and those of the parents."""
    kept: Sequence[Experiment] = ()
    """The newest, where a trace may be opened on one."""
    stood_on: frozenset[str] = frozenset()
    """Nodes that the newest traces, ended ones too, have for their base or began at."""
    values: Mapping[str, float] = field(default_factory=dict)
    """Of a merge: the values of the traces' bases."""
    noise: Spread = field(default_factory=Spread)
    """Of the tag's main class of GPU; read for a merge of near misses."""
    near: Sequence[Experiment] = ()
    """Of a merge: the near misses of the tag's best, best first."""
    combined: Sequence[Sequence[str]] = ()
    """Of a merge: the parents of the newest experiments."""


@dataclass(frozen=True)
class Needs:
    """What a decision needs beside the facts that all have in common."""

    gpus: bool = False
    scheduler: str | None = None
    """To be loaded; None: nothing takes turns."""
    kept: bool = False
    """The newest keeps, and the nodes that traces stand on."""
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
    """What the selection says, beside what it takes from its trace's tip and base."""
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
    """Of its trace, where the parents depend on it."""
    most_in_flight: int | None = None
    """Open selections of the trace."""


@dataclass(frozen=True)
class Wait:
    """There is nothing to select now."""

    reason: Why
    retry_after: float
    """Seconds."""
