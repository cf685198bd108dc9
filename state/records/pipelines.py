"""The pipeline of a tag: the program that is drafted for its next batch, and how drafts have fared."""

from __future__ import annotations

from typing import Literal

from state.records.base import Record

DraftState = Literal["drafting", "ready", "confirmed"]
FlushReason = Literal["mismatch", "hypothesis_flip", "outlier", "age", "operator"]
FIRST_BANK = 0.5


class BatchDecision(Record):
    """Decision after a batch of results."""

    hypothesis_id: str
    """The leading hypothesis: it has the most workers."""
    strategy: str
    """Strategy of its population."""


class Expected(Record):
    """Prediction of a hypothesis' next run."""

    mean: float
    """Delta to the worker's baseline, below 0 is better."""
    sigma: float


class Draft(Record):
    """A program that is written before the results are in that decide it."""

    number: int
    """1 for the first of a tag."""
    spec_id: str
    batch_id: int
    state: DraftState
    predicted: BatchDecision
    """Predicted decision of the batch."""
    decided: BatchDecision | None = None
    """Decision of the batch, had it ended when this draft was begun."""
    confidence: float
    """Share of resamples with the predicted decision, 0 to 1."""
    created_at: float
    expected: dict[str, Expected] = {}
    """By hypothesis. A result far from it is an outlier."""


class ConfirmedDraft(Record):
    """The draft that was confirmed last, as its batch ended; it is kept when the next one begins."""

    spec_id: str
    at: float
    """Seconds since 1970, Redis' clock."""
    strategy: str
    """The strategy with the most workers over all populations then."""


class Pipeline(Record):
    """Drafts of a tag."""

    version: int = 0
    """Counts its changes."""
    batch_id: int = 0
    """Batches that have ended before the one that runs."""
    ticks_before: int = 0
    """Ticks that the tag had as the batch began."""
    ticks_drafted: int = 0
    """Ticks that it had as the batch began, or its last draft was flushed: the next draft counts from there."""
    decided: BatchDecision | None = None
    """Decision of the last batch."""
    draft: Draft | None = None
    specs: int = 0
    """Drafts that were begun."""
    bank: float = FIRST_BANK
    """Trust in drafts, 0 to 1."""
    confirmed: ConfirmedDraft | None = None
    confirmed_count: int = 0
    flush_count: int = 0
    last_flush_token: str | None = None
    """Id of the draft that was flushed last."""
