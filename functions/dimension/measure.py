"""dimension::measure tells how much each dimension of a swarm matters."""

from __future__ import annotations

import asyncio

from pydantic import Field

from functions.contract import Command, Every, Response, function
from functions.rules.swarm.measuring import is_due, measured
from state.dimensions import Dimensions
from state.ids import Tag as TagName
from state.swarms import Swarms

MEASURE_S = 60.0


class MeasureDimensions(Command):
    tag: TagName | None = Field(
        None, description="only this tag; else every tag that has a swarm", examples=["swarm"]
    )


class MeasuredDimensions(Response):
    results: dict[str, int]
    """By tag, of those that were measured now: results that it was measured on."""


@function("dimension::measure", Every(MEASURE_S), role="operator", writes=True)
async def measure(request: MeasureDimensions, swarms: Swarms, dimensions: Dimensions) -> MeasuredDimensions:
    """Measure how much each dimension matters, by itself and with others, once enough results are new."""
    found = dict[str, int]()
    for tag in [request.tag] if request.tag is not None else await swarms.tags():
        facts = await swarms.refill_facts(tag, [])
        if not is_due(facts):
            continue
        # in a thread: the model is asked ten thousand times
        after = await asyncio.to_thread(measured, facts)
        results = max((d.n_samples for d in after), default=0)
        event = {"results": results, "importance": {d.name: d.importance for d in after}}
        if results and await dimensions.measure(tag, facts.dimensions_version, after, event) is not None:
            found[tag] = results
    return MeasuredDimensions(results=found)
