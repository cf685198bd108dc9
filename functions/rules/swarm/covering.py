"""The sampler of what tests a claim: it draws every section of the claim's ranges alike often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from functions.rules.swarm.dimensions import same
from functions.rules.swarm.observations import Observation
from functions.rules.swarm.proposals import LEAST, Proposal
from functions.rules.swarm.sections import Sections, section_of, sections_of
from functions.rules.swarm.shapes import Freedom, Shape, freedoms_of, varied_names
from state.records import Dimension, Value

if TYPE_CHECKING:
    from random import Random


class Covering:
    """Draws in the section that the fewest runs beside the shape's center lie in, whatever these have measured.

    What looks for good values would seldom draw where they are bad, and a claim could not be judged there.
    """

    def propose(
        self,
        dimensions: Sequence[Dimension],
        observations: Sequence[Observation],
        shape: Shape,
        count: int,
        rng: Random,
    ) -> list[Proposal]:
        freedoms = freedoms_of(dimensions, shape)
        sections = {f.dimension.name: sections_of(f.room) for f in freedoms if f.share}
        drawn = {name: _runs(name, sections, observations, shape) for name in sections}
        return [self._one(freedoms, sections, drawn, shape, rng) for _ in range(count)]

    def believed_best(
        self, dimensions: Sequence[Dimension], observations: Sequence[Observation]
    ) -> Mapping[str, Value] | None:
        """See Sampler: it compares no configs."""
        return None

    def _one(
        self,
        freedoms: Sequence[Freedom],
        sections: Mapping[str, Sections],
        drawn: Mapping[str, Counter[str]],
        shape: Shape,
        rng: Random,
    ) -> Proposal:
        config = {f.dimension.name: f.standing for f in freedoms}
        for name in sorted(varied_names(freedoms, shape, rng)):
            runs = drawn[name]
            fewest = min(runs[section] for section in sections[name])
            section = rng.choice([each for each in sections[name] if runs[each] == fewest])
            config[name] = sections[name][section].drawn(rng)
            runs[section] += 1
        return Proposal(config, LEAST[shape.strategy], "a part of the range with few runs")


def _runs(
    name: str, sections: Mapping[str, Sections], observations: Sequence[Observation], shape: Shape
) -> Counter[str]:
    """How many runs lie in each section of a dimension, of those that differ from the center as this shape's do."""
    found = Counter[str]()
    for seen in observations:
        apart = [each for each, value in shape.center.items() if not same(seen.config.get(each), value)]
        if name in apart and name in seen.config and sections.keys() >= set(apart):
            section = section_of(seen.config[name], sections[name])
            if section is not None:
                found[section] += 1
    return found
