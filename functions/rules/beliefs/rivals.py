"""The reference config of a claim whose constraint leaves it one config: one with another value.

"OPTIMIZER adam is best" has all of its runs at adam. None differs from a reference config that is at adam, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from functions.rules.beliefs.evidence import about
from functions.rules.swarm.dimensions import same
from functions.rules.swarm.rooms import room_of
from state.records import Dimension, Hypothesis, Value


def with_rival(
    hypothesis: Hypothesis, reference: Mapping[str, Value], dimensions: Sequence[Dimension]
) -> dict[str, Value]:
    """The reference config of a hypothesis, made of this one: where each config that honours the constraint would be
    equal to it in all that the claim is about, the first dimension of the constraint that may vary has another value.
    """
    found, constraint = dict(reference), hypothesis.config_constraint
    mine = [d for d in dimensions if d.name in about(hypothesis) and not d.frozen and d.name in found]
    if not all(_is_pinned(d, constraint.get(d.name), found[d.name]) for d in mine):
        return found
    for d in mine:
        other = _another(d, found[d.name])
        if other is not None:
            return {**found, d.name: other}
    return found


def _is_pinned(dimension: Dimension, allowed: Any, value: Value) -> bool:
    """Whether the constraint leaves the dimension this value and no other."""
    if allowed is None:
        return False
    room = room_of(dimension, allowed)
    return room is not None and room.single and room.holds(value)


def _another(dimension: Dimension, value: Value) -> Value | None:
    """Another value of the dimension, the middle of a range if it is another; None: it has no other."""
    room = room_of(dimension)
    assert room is not None
    values = room.choices or [room.level(share) for share in (0.5, 0.0, 1.0)]
    return next((each for each in values if not same(each, value)), None)
