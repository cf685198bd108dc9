"""A dimension: a top-level constant of a train.py that a swarm may vary, with its range."""

from __future__ import annotations

import math
import sys
from typing import Annotated, Literal

from pydantic import PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from state.records.base import Record

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
    interacts_with: dict[str, float] = {}
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
    """A dimension of a tag."""

    frozen_at: float | None = None

    @property
    def on_trial(self) -> bool:
        """Adopted from a proposal. Configs leave it out, except runs that try it."""
        return self.is_canary and not self.frozen and self.default_value is not None
