"""The reference config of a claim whose constraint allows one value only: it has another value.

All runs that test "OPTIMIZER adam is best" have adam, so they must be compared with a run that has not.
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
    """The reference config of a hypothesis, made from `reference`.

    It is changed only if the constraint allows nothing but the values that `reference` has in all dimensions of the
    claim. Then the first of these dimensions that has another value takes it.
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
