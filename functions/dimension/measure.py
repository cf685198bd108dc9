"""dimension::measure measures how much the dimensions of a swarm matter."""

from __future__ import annotations

import asyncio

from pydantic import Field

from functions.contract import Command, Every, Response, function
from functions.rules.swarm.refilling import observations_of
from state.dimensions import Dimensions
from state.ids import Tag as TagName
from state.records import Dimension
from state.swarm_facts import RefillFacts
from state.swarms import Swarms

MEASURE_S = 60.0
NEWS = 0.1
"""Share of the results that must be new since the last measurement."""
LEAST_NEWS = 10


class MeasureDimensions(Command):
    tag: TagName | None = Field(
        None, description="only this tag; else every tag that has a swarm", examples=["swarm"]
    )


class MeasuredDimensions(Response):
    results: dict[str, int]
    """Results that the measurement used, by tag; only tags that were measured now."""


@function("dimension::measure", Every(MEASURE_S), role="operator", writes=True)
async def measure(request: MeasureDimensions, swarms: Swarms, dimensions: Dimensions) -> MeasuredDimensions:
    """Measure how much each dimension matters, by itself and with others, once enough results are new."""
    found = dict[str, int]()
    for tag in [request.tag] if request.tag is not None else await swarms.tags():
        facts = await swarms.refill_facts(tag, [])
        if not _is_due(facts):
            continue
        # in a thread: the model is asked ten thousand times
        after = await asyncio.to_thread(_measured, facts)
        results = max((d.n_samples for d in after), default=0)
        event = {"results": results, "importance": {d.name: d.importance for d in after}}
        if results and await dimensions.measure(tag, facts.dimensions_version, after, event) is not None:
            found[tag] = results
    return MeasuredDimensions(results=found)


def _is_due(facts: RefillFacts) -> bool:
    """Whether enough results are new, or a dimension was never measured."""
    results = facts.tag.results
    before = min((d.n_samples for d in facts.dimensions), default=results)
    return results - before >= max(LEAST_NEWS, NEWS * results)


def _measured(facts: RefillFacts) -> list[Dimension]:
    """The dimensions with new shares; unchanged after too few runs. A dimension on trial keeps its shares."""
    # numpy and scipy take most of a second to import, and few processes measure
    from functions.rules.swarm.gaussian_process.importance import importances

    found = importances([d for d in facts.dimensions if not d.on_trial], observations_of(facts))
    if not found:
        return [*facts.dimensions]
    after = list[Dimension]()
    for d in facts.dimensions:
        shares = {} if d.on_trial else vars(found[d.name])
        after.append(d.model_copy(update={**shares, "n_samples": facts.tag.results}))
    return after
