"""The sections of a range: both ends and what lies between them; of categories, each one.

What is said of a whole range has to hold in each of its sections.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from functions.rules.swarm.rooms import Allowed, Room, room_of
from state.records import Dimension, Value

END: Final = 1 / 5
"""Share of a range, in its own scale, that either end is. Effects are often largest at the ends: they are narrow."""

Sections = Mapping[str, Room]
"""By their names, which say where they begin and end."""


def sections_of(room: Room) -> Sections:
    """The sections in which a room has values."""
    if room.choices:
        return {json.dumps(value): replace(room, choices=(value,)) for value in room.choices}
    low, high = room.level(END), room.level(1 - END)
    assert isinstance(low, int | float)
    assert isinstance(high, int | float)
    step = 1 if room.dimension.dtype == "int" else 0
    cut = [room.inside(-math.inf, low), room.inside(low + step, high - step), room.inside(high, math.inf)]
    return {_name(found): found for found in cut if found is not None}


def sections_of_claim(dimension: Dimension, allowed: Allowed | None) -> Sections:
    """The sections of what a claim allows of a dimension; a frozen one has the value that it is frozen at."""
    if dimension.frozen and dimension.frozen_value is not None:
        return sections_of(Room(dimension, choices=(dimension.frozen_value,)))
    room = room_of(dimension, allowed)
    return {} if room is None else sections_of(room)


def section_of(value: Value, sections: Sections) -> str | None:
    """The section that a value lies in, the first of two that share it; None: it lies in none."""
    return next((name for name, room in sections.items() if room.holds(value)), None)


def is_alone(value: Value, room: Room) -> bool:
    """Whether a section has this value and no other."""
    return room.single and room.holds(value)


def _name(room: Room) -> str:
    return ",".join(f"{low!r}..{high!r}" for low, high in room.spans)
