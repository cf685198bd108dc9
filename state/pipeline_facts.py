"""What was read of a tag for its pipeline, and what a step of that changes; values only, no IO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from state.belief_facts import BeliefFacts, EvidenceFacts, Kept
from state.records import Direction, Experiment, Pipeline, Record

StepKind = Literal["drafting", "ready", "confirmed", "flushed", "batch"]
"""What a step does to the draft; `batch`: another batch begins, and nothing becomes of a draft."""


@dataclass(frozen=True)
class Stand:
    """How a pipeline stands: what is read whenever something may have happened."""

    now: float
    pipeline: Pipeline
    results: int
    """Results that were learned from."""
    ticks: int
    """Times that a run of the tag has reached a bucket."""
    has_program: bool
    """Workers have been given a generated program."""


class Ended(Record):
    """A run that has ended, as it may be an outlier."""

    experiment_id: str
    hypothesis_id: str | None = None
    delta_bpb: float | None = None
    is_reference: bool = False
    retest_of: str | None = None
    finished_at: float | None = None


@dataclass(frozen=True)
class PipelineFacts:
    """What a step of a pipeline is decided on."""

    stand: Stand
    beliefs: BeliefFacts
    ended: Sequence[Ended]
    """The newest runs that ended, newest first."""

    @property
    def direction(self) -> Direction:
        return self.beliefs.tag.direction


@dataclass(frozen=True)
class EarlyFacts(EvidenceFacts):
    """What the end of a batch is predicted from."""

    kept: Mapping[str, Kept]
    """Of the open hypotheses, by id."""
    running: Sequence[Experiment]
    """Runs that have not ended, those that began first at the front."""
    ended: Sequence[Experiment]
    """The newest runs that did."""


@dataclass(frozen=True)
class Step:
    """What changes of a pipeline at once."""

    kind: StepKind
    before: Pipeline
    after: Pipeline
    data: Mapping[str, Any]
    """Of the event; empty where there is none."""
    text: str | None = None
    """What the draft says, once it is written."""
