"""Values of a tag's journal: the facts for a checkpoint, and the state that the next one starts from. No IO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import TypeAdapter

from state.records import Hypothesis


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

    tag: str
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
