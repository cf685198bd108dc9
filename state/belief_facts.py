"""Values of a tag's beliefs and of its journal: the facts for a decision, and the changes that it makes. No IO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter

from state.facts import Spread
from state.policy import Policy
from state.records import Dimension, Experiment, Hypothesis, Tag, Value


@dataclass(frozen=True)
class BeliefFacts:
    now: float
    tag: Tag
    policy: Policy
    dimensions: Sequence[Dimension]
    version: int
    """Counts the changes of the beliefs."""
    open: Sequence[Hypothesis]
    active_workers: int
    populations: Mapping[str, str]
    """Their texts by id."""
    results: int
    """Results that were learned from."""
    allocated_at: int
    """Number of results at the last rebalancing of workers."""
    allocations: int

    @property
    def has_beliefs(self) -> bool:
        """Whether the tag ever had a hypothesis. Most tags of agents never have one."""
        return self.version > 0


@dataclass(frozen=True)
class ProposalFacts(BeliefFacts):
    archived: Sequence[Hypothesis]
    best_config: Mapping[str, Value]
    """Config of the tag's best; empty if it has none."""


@dataclass(frozen=True)
class EvidenceFacts(BeliefFacts):
    """Facts for learning from any run of a tag."""

    best_config: Mapping[str, Value]
    references: Sequence[str]
    """Runs of reference configs, their texts, oldest first."""
    noise: Spread
    """Between runs of one config."""
    reprieved: Mapping[str, str]
    """Sums of outcomes and counts of runs by bucket and band of ranks; see `functions/beliefs/rules/terms.py`."""


@dataclass(frozen=True)
class LearningFacts(EvidenceFacts):
    run: Experiment
    is_learned: bool
    """Whether its result was learned before."""


@dataclass(frozen=True)
class StoredEvidence:
    """The stored texts of one hypothesis, beside its record."""

    evidence: str | None = None
    """Its newest evidence."""
    unpaired: str | None = None
    """Its runs that wait for a reference run."""
    used: str | None = None
    """Ids of the reference runs that are already paired."""
    blocks: str | None = None
    """Its runs and reference runs by worker and part of the range: counts and sums."""


@dataclass(frozen=True)
class Learning:
    """Changes of a tag's beliefs after one run."""

    changed: Mapping[str, tuple[Hypothesis, StoredEvidence]] = field(default_factory=dict)
    """Hypotheses by id."""
    archived: Sequence[str] = ()
    """Changed hypotheses that are now archived."""
    reference: str | None = None
    """The run, if it is one of a reference config."""
    populations: Mapping[str, str] | None = None
    """Texts by id; None: they stay as they are."""
    reprieved: Mapping[str, str] = field(default_factory=dict)
    believed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Data of the events of hypotheses whose status has changed, by id."""
    settled: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Data of the events of hypotheses with a new verdict, by id."""


@dataclass(frozen=True)
class JournalBelief:
    """Belief about a hypothesis at a checkpoint."""

    posterior_mean: float
    n_experiments: int
    status: str
    settled: str | None
    """The verdict; None: none yet."""


@dataclass(frozen=True)
class Staff:
    """Population of a hypothesis at a checkpoint: its workers and its strategy."""

    statement: str
    strategy: str
    target: int
    workers: Sequence[str] = ()
    """Ids, sorted."""


@dataclass(frozen=True)
class BeliefSnapshot:
    """A tag at a checkpoint."""

    number: int = 0
    """1 for the first checkpoint; 0: there was none yet."""
    at: float = 0.0
    """Seconds since 1970, Redis' clock."""
    version: int = 0
    results: int = 0
    """Results that were learned from."""
    references: int = 0
    """Reference runs among these."""
    beliefs: Mapping[str, JournalBelief] = field(default_factory=dict)
    """By hypothesis; archived ones too."""
    populations: Mapping[str, Staff] = field(default_factory=dict)

    def text(self) -> str:
        """As stored text."""
        return _SNAPSHOT.dump_json(self).decode()

    @staticmethod
    def read(text: str | None) -> BeliefSnapshot:
        """The snapshot that was kept; of a tag without a checkpoint, one of nothing."""
        return BeliefSnapshot() if text is None else _SNAPSHOT.validate_json(text)


_SNAPSHOT = TypeAdapter(BeliefSnapshot)


@dataclass(frozen=True)
class JournalFacts:
    """A tag's beliefs now, and at its newest checkpoint."""

    now: float
    version: int
    results: int
    references: int
    hypotheses: Sequence[Hypothesis]
    """Archived ones too. Ordered by proposal, without evidence."""
    populations: Mapping[str, str]
    """Their texts by id."""
    assigned: Mapping[str, str]
    """The population of each worker."""
    before: BeliefSnapshot


@dataclass(frozen=True)
class Pages:
    """Checkpoints of a journal, one after the other."""

    count: int
    """Number of all checkpoints."""
    first: int
    """Number of the first of these."""
    texts: Sequence[str]
    """Markdown."""
