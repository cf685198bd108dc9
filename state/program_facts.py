"""Values of a tag's program: the facts for a decision, and the record of each version. No IO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import TypeAdapter

from state.belief_facts import ProposalFacts
from state.facts import Spread
from state.policy import Guards
from state.records import Best, Direction, Sketch, Strategy, Tag


@dataclass(frozen=True)
class ProgramVersion:
    """One version of the block that a tag's program has between the markers."""

    number: int
    """1 for the first."""
    at: float
    """Seconds since 1970, Redis' clock."""
    author: str
    """`templates`, or the provider and model that wrote it."""
    reason: str
    results: int
    """Results that the tag had."""
    strategy: str
    """The strategy of most of its work then."""
    block: str
    base_digest: str
    """Digest of the charter that it was written into."""

    def text(self) -> str:
        """As stored text."""
        return _VERSION.dump_json(self).decode()

    @staticmethod
    def read(text: str) -> ProgramVersion:
        return _VERSION.validate_json(text)


_VERSION = TypeAdapter(ProgramVersion)


@dataclass(frozen=True)
class Base:
    """The charter: the operator's file, or Nightjar's own."""

    text: str
    digest: str
    """First 16 hexadecimal digits of the SHA-256 of its texts."""
    workers: str | None = None
    """Nightjar's own charter for workers of a swarm; None: the operator's charter holds for all."""


@dataclass(frozen=True)
class ProgramAsk:
    """A language model was asked for the next version."""

    number: int
    attempt: int
    at: float
    reason: str


@dataclass(frozen=True)
class DueFacts:
    """Facts to decide whether a tag needs another version."""

    now: float
    tag: Tag
    strategy: Strategy
    populations: Sequence[str]
    """Their texts; empty: the tag has none."""
    current: ProgramVersion | None
    ask: ProgramAsk | None
    base: Base | None

    @property
    def number(self) -> int:
        """Number of the next version."""
        return 1 if self.current is None else self.current.number + 1


@dataclass(frozen=True)
class ServedProgram:
    """Parts of a tag's program."""

    base: Base | None
    current: ProgramVersion | None
    is_swarm: bool
    """Whether workers may vary anything in it."""
    guards: Guards = field(default_factory=Guards)
    direction: Direction = "minimize"


@dataclass(frozen=True)
class ProgramGround:
    """Results of a tag's experiments for its program, beliefs aside."""

    best: Best | None
    noise: Spread
    """Of the tag's main class of GPU."""
    results: Sequence[Sketch]
    """The newest that finished, newest first."""
    categories: Mapping[str, tuple[int, int]]
    """Total and kept of every category that was tried."""
    configs: Sequence[tuple[str, str]]
    """Constants as JSON, and deltas, of the newest runs of a swarm that ended with a value: many, so still texts."""


@dataclass(frozen=True)
class FindingsFacts:
    due: DueFacts
    beliefs: ProposalFacts
    ground: ProgramGround
