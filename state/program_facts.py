"""Values of a tag's program and of its pipeline: the facts for a step, and the changes that it makes. No IO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import TypeAdapter

from state.belief_facts import BeliefFacts, EvidenceFacts, ProposalFacts, StoredEvidence
from state.facts import Spread
from state.policy import Guards
from state.records import Best, Direction, Experiment, Pipeline, Record, Sketch, Strategy, Tag


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
    is_swarm: bool
    """Whether workers may vary anything in it."""

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


StepKind = Literal["drafting", "ready", "confirmed", "flushed", "batch"]
"""Effect of a step on the draft. `batch`: another batch begins without effect on a draft."""


@dataclass(frozen=True)
class PipelineState:
    """State of a pipeline, read after every event that may move it."""

    now: float
    pipeline: Pipeline
    results: int
    """Number of results that were learned."""
    ticks: int
    """Number of buckets that runs of the tag have reached."""
    has_program: bool
    """Workers have been given a generated program."""


class OutlierRun(Record):
    """A run that has ended, as it may be an outlier."""

    experiment_id: str
    hypothesis_id: str | None = None
    delta_bpb: float | None = None
    is_reference: bool = False
    retest_of: str | None = None
    finished_at: float | None = None


@dataclass(frozen=True)
class PipelineFacts:
    stand: PipelineState
    beliefs: BeliefFacts
    ended: Sequence[OutlierRun]

    @property
    def direction(self) -> Direction:
        return self.beliefs.tag.direction


@dataclass(frozen=True)
class EarlyFacts(EvidenceFacts):
    """Facts to predict the end of a batch."""

    kept: Mapping[str, StoredEvidence]
    """Stored texts of the open hypotheses, by id."""
    running: Sequence[Experiment]
    """Runs that have not ended, those that began first at the front."""
    ended: Sequence[Experiment]
    """The newest runs that did."""


@dataclass(frozen=True)
class PipelineStep:
    """Changes of a pipeline in one commit."""

    kind: StepKind
    before: Pipeline
    after: Pipeline
    data: Mapping[str, Any]
    """Data of the event; empty: no event."""
    text: str | None = None
    """Text of the draft, once it is written."""
