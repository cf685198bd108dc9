"""What answers show of a dimension."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, WithJsonSchema

from state.records import Dimension, Dtype, Number, Value, stamp


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


def dimension_view(dimension: Dimension) -> DimensionView:
    at = dimension.frozen_at
    return DimensionView(
        **dimension.model_dump(exclude={"frozen_at"}), frozen_at=None if at is None else stamp(at)
    )
