"""What was read of a tag's beliefs for a decision, and what a decision changes; values only, no IO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from state.facts import Spread
from state.policy import Policy
from state.records import Dimension, Experiment, Hypothesis, Tag, Value


@dataclass(frozen=True)
class BeliefFacts:
    """A tag with the hypotheses that are open: those that results still bear on."""

    now: float
    tag: Tag
    policy: Policy
    dimensions: Sequence[Dimension]
    version: int
    """Counts the changes of the beliefs."""
    open: Sequence[Hypothesis]
    """In the order in which they were proposed, without their evidence."""
    active_workers: int
    populations: Mapping[str, str]
    """Their texts by id."""
    results: int
    """Results that were learned from."""
    allocated_at: int
    """As many had been when workers were last shared out."""
    allocations: int

    @property
    def has_beliefs(self) -> bool:
        """Whether the tag ever had a hypothesis: most tags of agents never do."""
        return self.version > 0


@dataclass(frozen=True)
class ProposalFacts(BeliefFacts):
    """What a proposal is judged by."""

    archived: Sequence[Hypothesis]
    best_config: Mapping[str, Value]
    """What the tag's best had; empty: it has none."""


@dataclass(frozen=True)
class EvidenceFacts(BeliefFacts):
    """What any run of a tag is learned from with."""

    best_config: Mapping[str, Value]
    references: Sequence[str]
    """Runs of reference configs, their texts, oldest first."""
    noise: Spread
    """Between runs of one config."""
    reprieved: Mapping[str, str]
    """Sums of outcomes and counts of runs by bucket and band of ranks; see `functions/rules/beliefs/terms.py`."""


@dataclass(frozen=True)
class LearningFacts(EvidenceFacts):
    """What a run that has ended is learned from with."""

    run: Experiment
    is_learned: bool
    """It was learned from before."""


@dataclass(frozen=True)
class Kept:
    """What is kept of one hypothesis beside its record, as texts."""

    evidence: str | None = None
    """Its newest evidence."""
    unpaired: str | None = None
    """Its runs that wait for a reference run."""
    used: str | None = None
    """Ids of the reference runs that its runs were compared with."""
    blocks: str | None = None
    """Its runs and reference runs by worker and part of the range, as numbers and sums."""


@dataclass(frozen=True)
class Learning:
    """What a run changes of a tag's beliefs."""

    changed: Mapping[str, tuple[Hypothesis, Kept]] = field(default_factory=dict)
    """By id."""
    archived: Sequence[str] = ()
    """Of these, those that are open no more."""
    reference: str | None = None
    """The run, if it is one of a reference config."""
    populations: Mapping[str, str] | None = None
    """Texts by id; None: they stay as they are."""
    reprieved: Mapping[str, str] = field(default_factory=dict)
    believed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Data of the events of hypotheses whose status has changed, by id."""
    settled: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The same of those that have a verdict now."""
