"""A proposal to add a dimension to a tag, with its trial and the outcome."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import WithJsonSchema

from state.records.base import Record
from state.records.dimensions import Dtype, Number, Value

ProposalState = Literal["listed", "on_trial", "promoted", "reverted", "ended"]
"""It waits to be proposed again; configs try it; it is a dimension; it was removed for what its runs showed; an
organiser has ended its trial, by defining, freezing or removing the dimension."""


class ProposedDimension(Record):
    """The fields of a dimension, and the trial that it had."""

    proposal_id: str
    name: str
    dtype: Dtype
    min: Number | None = None
    max: Number | None = None
    categories: list[Value] | None = None
    default_value: Annotated[Value, WithJsonSchema({})]
    """What a train.py has where no config names the constant."""
    rationale: str | None = None
    train_py_line: str | None = None
    """What sets the constant to its default in a train.py; None: name, = and the default."""
    source: Literal["operator", "agent", "llm", "default"]
    proposed_by: str
    proposed_at: float
    proposed_results: int | None = None
    """Results that the tag had then."""
    times: int = 1
    """How often it was proposed, in other spellings too."""
    cycles: list[int] = []
    """Stall cycles in which it was, once each."""
    state: ProposalState = "listed"
    reason: str | None = None
    """Why its trial has ended; None: it has not."""
    adopted_at: float | None = None
    adopted_results: int | None = None
    """Results that the tag had when its trial began."""
    adopted_number: int | None = None
    """The tag's newest experiment then: runs with a higher number were handed out since."""
    best_before: float | None = None
    """What the tag's best was judged by then."""
    judged_at: float | None = None
    judged_results: int | None = None
    varied: int | None = None
    """Results that had varied it when its trial ended."""
    gain: float | None = None
    """By how much the best run that varied it beats the best run without it, both run again; None: none was kept."""
