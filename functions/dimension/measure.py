"""dimension::measure measures how much the dimensions of a swarm matter."""

from __future__ import annotations

import asyncio

from pydantic import Field

from functions.contract import Command, Every, Response, function
from functions.rules.swarm.refilling import observations_of
from state.change import Change
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
    tags = [request.tag] if request.tag is not None else await swarms.tags()
    found = {tag: await _measure(tag, swarms, dimensions) for tag in tags}
    return MeasuredDimensions(results={tag: results for tag, results in found.items() if results})


async def _measure(tag: str, swarms: Swarms, dimensions: Dimensions) -> int:
    """Number of results that were measured by; 0 where nothing was measured."""

    async def decide(change: Change) -> int:
        facts = await swarms.refill_facts(tag, [], change)
        if not _is_due(facts):
            return 0
        # in a thread: the model is asked ten thousand times
        after = await asyncio.to_thread(_measured, facts)
        results = max((d.n_samples for d in after), default=0)
        if results:
            event = {"results": results, "importance": {d.name: d.importance for d in after}}
            dimensions.measure(change, tag, after, event)
        return results

    return await dimensions.change(decide)


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
