"""Dimensions and proposed dimensions in answers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, WithJsonSchema

from functions.rules.swarm.canaries.proposing import line_of
from functions.rules.swarm.canaries.trials import eligibility_of
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
    """Its value in every config while it is frozen."""
    frozen_by: str | None
    frozen_at: str | None
    frozen_reason: str | None
    importance: float | None
    """Share of the results' variance that it explains by itself, 0 to 1; null: not measured."""
    interaction: float | None
    """The share that it explains only together with others."""
    interacts_with: dict[str, float]
    """Share that it explains together with one other dimension, by its name; largest first, from 0.02 on."""
    n_samples: int
    """Results of the tag when importance was measured; 0: it was not."""
    is_canary: bool
    """On trial: only a share of the configs varies it."""
    canary_prob: float | None
    default_value: Annotated[Value | None, WithJsonSchema({})]
    """Its value in train.py, for configs that leave it out as most do during its trial; null: all configs name it."""


def dimension_view(dimension: Dimension) -> DimensionView:
    at = dimension.frozen_at
    return DimensionView(
        **dimension.model_dump(exclude={"frozen_at"}), frozen_at=None if at is None else stamp(at)
    )


class ProposedDimensionView(BaseModel):
    """A dimension that was proposed to a tag."""

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
    """The line that a train.py needs if it lacks the constant."""
    source: Literal["operator", "agent", "llm", "default"]
    proposed_at: str
    times: int
    """How often it was proposed, in any spelling."""
    signal_count: int
    """Number of stall cycles in which it was proposed; two make it eligible."""
    cycles: list[int]
    """Numbers of these stall cycles."""
    eligible: bool
    """It is adopted once the search stalls and no trial runs."""
    adopted: bool
    """It is on trial, or promoted."""
    state: ProposalState
    reason: str
    """Why it is not adopted yet, or the result of its trial."""
    adopted_results: int | None
    """Results of the tag when its trial began."""
    judged_results: int | None
    """Results of the tag when its trial ended."""
    varied: int | None
    """Results that had varied it when its trial ended."""
    gain: float | None
    """Gain of the best run that varied it over the best run without it, both repeated; above 0 is better."""


def proposed_view(proposal: ProposedDimension, facts: TrialFacts) -> ProposedDimensionView:
    found = eligibility_of(proposal, facts)
    own = ProposedDimensionView.model_fields.keys() - {"train_py_line", "proposed_at", "reason"}
    return ProposedDimensionView(
        **proposal.model_dump(include=own),
        train_py_line=line_of(proposal),
        proposed_at=stamp(proposal.proposed_at),
        signal_count=len(proposal.cycles),
        eligible=found.is_eligible,
        adopted=proposal.state in ("on_trial", "promoted"),
        reason=found.reason,
    )
