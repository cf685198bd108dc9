"""What answers show of a dimension."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, WithJsonSchema

from functions.rules.swarm.canaries.proposing import line_of
from functions.rules.swarm.canaries.trials import standing_of
from state.records import Dimension, Dtype, Number, ProposalState, ProposedDimension, Value, stamp
from state.trial_facts import TrialFacts


class DimensionView(BaseModel):
    """A constant of train.py that a swarm may vary."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False, defer_build=True)

    name: str
    dtype: Dtype
    min: Number | None
    max: Number | None
    categories: list[Value] | None
    frozen: bool
    frozen_value: Annotated[Value | None, WithJsonSchema({})]
    """What it is in every config while it is frozen."""
    frozen_by: str | None
    frozen_at: str | None
    frozen_reason: str | None
    importance: float | None
    """Share of the results' variance that it explains by itself, 0 to 1; null: not measured."""
    interaction: float | None
    """The share that it explains only together with others."""
    interacts_with: dict[str, float]
    """What of this it explains with one other dimension, by that one's name, largest first; 0.02 and more."""
    n_samples: int
    """Results that the tag had when that was measured; 0: it was not."""
    is_canary: bool
    """On trial: only a share of the configs varies it."""
    canary_prob: float | None
    default_value: Annotated[Value | None, WithJsonSchema({})]
    """What a train.py has where a config leaves it out, as most do while it is on trial; null: no config does."""


def dimension_view(dimension: Dimension) -> DimensionView:
    at = dimension.frozen_at
    return DimensionView(
        **dimension.model_dump(exclude={"frozen_at"}), frozen_at=None if at is None else stamp(at)
    )


class ProposedDimensionView(BaseModel):
    """A dimension that was proposed to a tag, and what has become of it."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False, defer_build=True)

    proposal_id: str
    name: str
    dtype: Dtype
    min: Number | None
    max: Number | None
    categories: list[Value] | None
    default_value: Annotated[Value, WithJsonSchema({})]
    rationale: str | None
    train_py_line: str
    """What a train.py without the constant lacks."""
    source: Literal["operator", "agent", "llm", "default"]
    proposed_at: str
    times: int
    """How often it was proposed, in other spellings too."""
    signal_count: int
    """Stall cycles in which it was; two make it eligible."""
    cycles: list[int]
    """Their numbers."""
    eligible: bool
    """It is adopted as soon as the search stalls and a place is free."""
    adopted: bool
    """It is on trial, or promoted."""
    state: ProposalState
    reason: str
    """Why it is not adopted yet, or what its trial has shown."""
    adopted_results: int | None
    """Results that the tag had when its trial began."""
    judged_results: int | None
    """The same when it ended."""
    varied: int | None
    """Results that had varied it then."""
    gain: float | None
    """By how much the best of these beats the best run without it, both run again; above 0 is better."""


def proposed_view(proposal: ProposedDimension, facts: TrialFacts) -> ProposedDimensionView:
    standing = standing_of(proposal, facts)
    own = ProposedDimensionView.model_fields.keys() - {"train_py_line", "proposed_at", "reason"}
    return ProposedDimensionView(
        **proposal.model_dump(include=own),
        train_py_line=line_of(proposal),
        proposed_at=stamp(proposal.proposed_at),
        signal_count=len(proposal.cycles),
        eligible=standing.is_eligible,
        adopted=proposal.state in ("on_trial", "promoted"),
        reason=standing.reason,
    )
