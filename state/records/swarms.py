"""Records of swarms: their workers, dimensions and proposals, and the pipelines that draft their programs."""

from __future__ import annotations

import math
import sys
from typing import Annotated, Literal

from pydantic import Field, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from state.records.base import Record


class SwarmWorker(Record):
    """One worker; its name is that of the token that it was given."""

    worker_id: str
    number: int
    """Number in the order of registration, from 1."""
    tag: str
    gpu_type: str
    """Class of its GPU: runs are ranked among those of the same class."""
    baseline_bpb: float
    """Value of its unchanged train.py."""
    contact: str | None = None
    """Contact of its owner."""
    token_id: str
    joined_at: float
    run_id: str | None = None
    """The run that it was handed out and that has not ended; None: it has none."""
    active: int = 0
    """Runs that were handed out to it, those of its own choice too, and have not ended."""
    population_id: str | None = None
    """The population that it was given a run of last."""
    compared: int = 0
    """Compared runs since its last one of a reference config; cells of tests count, too."""
    runs: int = 0
    """Runs that ended with a value, or were stopped, and were not retracted."""


class HeardWorker(SwarmWorker):
    """A worker with when it was last heard of, in seconds since 1970."""

    heard_at: float


class Leader(SwarmWorker):
    """A worker with its best run."""

    best_delta_bpb: float
    best_config_delta: dict[str, object] = Field(default_factory=dict)


Dtype = Literal["float_log", "float", "int", "categorical"]


def _is_number(value: object) -> bool:
    if type(value) is int:
        return abs(value) <= sys.float_info.max  # readers of JSON take a larger one for infinity
    return type(value) is float and math.isfinite(value)


def _number(value: object) -> object:
    if not _is_number(value):
        raise PydanticCustomError("number", "Input should be a finite number")
    return value


def _value(value: object) -> object:
    if not (isinstance(value, str | bool) or _is_number(value)):
        raise PydanticCustomError("value", "Input should be a finite number, a text, true or false")
    return value


Number = Annotated[int | float, PlainValidator(_number), WithJsonSchema({"type": "number"})]
"""An int stays one."""
Value = Annotated[bool | int | float | str, PlainValidator(_value), WithJsonSchema({})]
"""Values of constants: a JSON number, text, true or false."""


class DimensionFields(Record):
    """What the record of a dimension and its answer have in common.

    `min` and `max` belong to a range, `categories` to a categorical; `functions/swarm/rules` checks it.
    """

    name: str
    dtype: Dtype
    min: Number | None = None
    max: Number | None = None
    categories: list[Value] | None = None
    frozen: bool = False
    """Every proposal sets it to `frozen_value`, until it is unfrozen."""
    frozen_value: Annotated[Value | None, WithJsonSchema({})] = None
    frozen_by: str | None = None
    frozen_reason: str | None = None
    importance: float | None = None
    """Share of the results' variance that it explains by itself, 0 to 1; None: not measured."""
    interaction: float | None = None
    """The share that it explains only together with others."""
    interacts_with: dict[str, float] = Field(default_factory=dict)
    """Share that it explains together with one other dimension, by its name; largest first, from 0.02 on."""
    n_samples: int = 0
    """Results of the tag when importance was measured; 0: it was not."""
    is_canary: bool = False
    """On trial: only a share of the proposals varies it."""
    canary_prob: float | None = None
    """Share of the proposals that vary it while it is on trial."""
    default_value: Annotated[Value | None, WithJsonSchema({})] = None
    """Value in a train.py without a config; None: every config names it."""


class Dimension(DimensionFields):
    frozen_at: float | None = None

    @property
    def on_trial(self) -> bool:
        """Adopted from a proposal. Configs leave it out, except runs that try it."""
        return self.is_canary and not self.frozen and self.default_value is not None


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
    cycles: list[int] = Field(default_factory=list)
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
    expected: dict[str, Expected] = Field(default_factory=dict)
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
