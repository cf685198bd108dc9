"""dimension::propose names a further constant of train.py that a swarm could vary."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictStr, WithJsonSchema

from functions.contract import Call, Command, Line, Response, function
from functions.dimension._proposing import enter
from functions.rules.swarm.dimensions import LONGEST_TEXT, MOST_CATEGORIES
from functions.views.dimensions import ProposedDimensionView, proposed_view
from state.dimension_proposals import DimensionProposals
from state.ids import Tag as TagName
from state.records import Dtype, Number, Value

Name = Annotated[StrictStr, Field(min_length=1, max_length=64)]
Setting = Annotated[Value, WithJsonSchema({})]


class ProposeDimension(Command):
    tag: TagName
    name: Name = Field(description="a constant of train.py, as it is spelt there", examples=["WARMUP_RATIO"])
    dtype: Dtype = Field(
        description="float_log: a float that is varied by factors; categorical: one of `categories`"
    )
    min: Number | None = Field(None, description="lowest value; not of a categorical", examples=[0.0])
    max: Number | None = Field(None, description="highest value; not of a categorical", examples=[0.5])
    categories: list[Value] | None = Field(
        None,
        min_length=1,
        max_length=MOST_CATEGORIES,
        description="all values of a categorical, 2 to 8",
        examples=[["none", "silu"]],
    )
    default_value: Setting = Field(description="what a train.py has today, inside the range", examples=[0.0])
    rationale: Line | None = Field(
        None, description="why varying it should improve the metric", examples=["the loss jumps at the start"]
    )
    train_py_line: Annotated[str, Field(max_length=2 * LONGEST_TEXT)] | None = Field(
        None,
        description="the line that sets it to its default; default: name = default",
        examples=["WARMUP_RATIO = 0.0"],
    )


class AskedDimension(Response):
    tag: str
    counted: bool
    """It counts for the stall cycle that goes on; false: the search does not stall, or it has counted already."""
    proposal: ProposedDimensionView


@function("dimension::propose", role="agent", writes=True)
async def propose(request: ProposeDimension, call: Call, proposals: DimensionProposals) -> AskedDimension:
    """Propose a dimension; proposed in two stalls of the search, it is tried in 12 % of the configs.

    One that says the same, however it is written, is counted once in a stall cycle.
    """
    fields = request.model_dump(exclude={"tag", "request_id"})
    source = "operator" if call.caller.may_do_all else "agent"
    found = await enter(request.tag, fields, call.caller.name, source, proposals)
    view = proposed_view(found.proposal, found.facts)
    return AskedDimension(tag=request.tag, counted=found.counted, proposal=view)
