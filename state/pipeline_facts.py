"""Values of a tag's pipeline: the facts for a step, and the changes that it makes. No IO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from state.belief_facts import BeliefFacts, EvidenceFacts, StoredEvidence
from state.records import Direction, Experiment, Pipeline, Record

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
