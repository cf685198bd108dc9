"""What was read of a tag for its journal, and what a checkpoint keeps for the next one; values only, no IO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import TypeAdapter

from state.records import Hypothesis


@dataclass(frozen=True)
class Stand:
    """What was believed of a hypothesis."""

    posterior_mean: float
    n_experiments: int
    status: str
    settled: str | None
    """The verdict; None: none yet."""


@dataclass(frozen=True)
class Staff:
    """Who tested a hypothesis, and how."""

    statement: str
    strategy: str
    target: int
    workers: Sequence[str] = ()
    """Ids, sorted."""


@dataclass(frozen=True)
class Snapshot:
    """A tag at a checkpoint."""

    number: int = 0
    """1 for the first checkpoint; 0: there was none yet."""
    at: float = 0.0
    """Seconds since 1970, Redis' clock."""
    version: int = 0
    """Of its beliefs."""
    results: int = 0
    """Results that were learned from."""
    references: int = 0
    """Of these, runs that were handed out as reference runs."""
    beliefs: Mapping[str, Stand] = field(default_factory=dict)
    """By hypothesis, archived ones too."""
    populations: Mapping[str, Staff] = field(default_factory=dict)

    def text(self) -> str:
        """As it is kept."""
        return _SNAPSHOT.dump_json(self).decode()

    @staticmethod
    def read(text: str | None) -> Snapshot:
        """The snapshot that was kept; of a tag without a checkpoint, one of nothing."""
        return Snapshot() if text is None else _SNAPSHOT.validate_json(text)


_SNAPSHOT = TypeAdapter(Snapshot)


@dataclass(frozen=True)
class JournalFacts:
    """A tag's beliefs now, and at its newest checkpoint."""

    tag: str
    now: float
    version: int
    """Of the beliefs."""
    results: int
    references: int
    hypotheses: Sequence[Hypothesis]
    """Archived ones too, in the order in which they were proposed, without their evidence."""
    populations: Mapping[str, str]
    """Their texts by id."""
    assigned: Mapping[str, str]
    """The population of each worker."""
    before: Snapshot


@dataclass(frozen=True)
class Pages:
    """Checkpoints of a journal, one after the other."""

    count: int
    """Checkpoints that there are in all."""
    first: int
    """Number of the first of these."""
    texts: Sequence[str]
    """Markdown."""
