"""A proposal to add a dimension to a tag, with its trial and the outcome."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import WithJsonSchema

from state.records.base import Record
from state.records.dimensions import Dtype, Number, Value

ProposalState = Literal["listed", "on_trial", "promoted", "reverted", "ended"]
"""listed: waits for another proposal. on_trial: configs try it. promoted: it is a dimension. reverted: its results
were too weak. ended: an organiser defined, froze or removed the dimension."""


class ProposedFields(Record):
    """What the record of a proposed dimension and its answer have in common."""

    proposal_id: str
    name: str
    dtype: Dtype
    min: Number | None = None
    max: Number | None = None
    categories: list[Value] | None = None
    default_value: Annotated[Value, WithJsonSchema({})]
    """Value in a train.py without a config."""
    rationale: str | None = None
    source: Literal["operator", "agent", "llm", "default"]
    times: int = 1
    """Number of proposals, in any spelling."""
    cycles: list[int] = []
    """Numbers of the stall cycles with a proposal."""
    state: ProposalState = "listed"
    adopted_results: int | None = None
    """Results that the tag had when its trial began."""
    judged_results: int | None = None
    """Results that the tag had when its trial ended."""
    varied: int | None = None
    """Results that had varied it when its trial ended."""
    gain: float | None = None
    """Gain of the best run that varied it over the best run without it, both repeated. None: none was kept."""


class ProposedDimension(ProposedFields):
    """The fields of a dimension, and the trial that it had."""

    train_py_line: str | None = None
    """Line that sets the default in a train.py; None: name, = and the default."""
    proposed_by: str
    proposed_at: float
    proposed_results: int | None = None
    """Results that the tag had then."""
    reason: str | None = None
    """Why its trial has ended; None: it has not."""
    adopted_at: float | None = None
    adopted_number: int | None = None
    """The tag's newest experiment then: runs with a higher number were handed out since."""
    best_before: float | None = None
    """Value that the tag's best was judged by then."""
    judged_at: float | None = None
