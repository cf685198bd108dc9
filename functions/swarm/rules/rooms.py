"""The room of a dimension: the values that a proposal may give it.

A range is measured in its own scale: by factors for a float_log, by differences for the others. Floats in a room have
at most 3 significant digits.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from functions.swarm.rules.dimensions import SMALLEST_FLOAT, ends_of, same, short, short_within, value_of
from state.errors import Invalid
from state.records import Dimension, Value

if TYPE_CHECKING:
    from random import Random


Numeric = int | float
Span = tuple[Numeric, Numeric]
"""Lowest and highest value, both inside."""
MOST_TOLD = 128
"""Most whole numbers of a range that are listed one by one."""
Allowed = Value | Sequence[Value] | Mapping[str, Numeric]
"""The values that a constraint allows: one value, a list of values, or a range with `min`, `max` or both."""


@dataclass(frozen=True)
class Room:
    """Values of one dimension: a choice of them, or spans of its range; never empty."""

    dimension: Dimension
    choices: tuple[Value, ...] = ()
    spans: tuple[Span, ...] = ()

    @property
    def single(self) -> bool:
        """There is nothing to choose."""
        return len(self.choices) == 1 or (len(self.spans) == 1 and self.spans[0][0] == self.spans[0][1])

    def drawn(self, rng: Random) -> Value:
        """A random value, uniform in the dimension's scale; every span has the same probability."""
        if self.choices:
            return rng.choice(self.choices)
        low, high = rng.choice(self.spans)
        if isinstance(low, int) and isinstance(high, int):
            return rng.randint(low, high)
        return _valued(self.dimension, rng.uniform(*_scaled_span(self.dimension, low, high)), (low, high))

    def middle(self) -> Value:
        """The middle of the longest span; the first of a choice, which has no middle."""
        return self.choices[0] if self.choices else self.level(0.5)

    def level(self, share: float) -> Value:
        """The value at this share (0 to 1) of the longest span."""
        low, high = max(self.spans, key=lambda span: span[1] - span[0])
        start, end = _scaled_span(self.dimension, low, high)
        return _valued(self.dimension, start + share * (end - start), (low, high))

    def holds(self, value: Value) -> bool:
        if self.choices:
            return any(same(choice, value) for choice in self.choices)
        return not isinstance(value, bool | str) and any(low <= value <= high for low, high in self.spans)

    def nearest(self, value: Value) -> Value | None:
        """The value of the room nearest to this one; None for a text or a bool that is not one of its values."""
        if self.choices:
            if (found := next((choice for choice in self.choices if same(choice, value)), None)) is not None:
                return found
            numbers = [c for c in self.choices if not isinstance(c, bool | str)]
            if isinstance(value, bool | str) or not numbers or self.dimension.dtype == "categorical":
                return None
            return min(numbers, key=lambda choice: abs(choice - value))
        if isinstance(value, bool | str):
            return None
        ends = [min(max(value, low), high) for low, high in self.spans]
        found_at = min(range(len(ends)), key=lambda n: abs(ends[n] - value))
        return _valued(self.dimension, _scaled(self.dimension, ends[found_at]), self.spans[found_at])

    def inside(self, low: Numeric, high: Numeric) -> Room | None:
        """Its values from `low` to `high`; None if there are none. The ends may lie outside the room."""
        if self.choices:
            left = tuple(c for c in self.choices if not isinstance(c, bool | str) and low <= c <= high)
            return replace(self, choices=left) if left else None
        cut = [_whole_span(self.dimension, max(low, a), min(high, b)) for a, b in self.spans]
        spans = tuple((a, b) for a, b in cut if a <= b)
        return replace(self, spans=spans) if spans else None

    def within(self, section: Room) -> Room | None:
        """Its values in a section of its range; None if there are none."""
        if not self.choices:
            return section
        left = tuple(choice for choice in self.choices if section.holds(choice))
        return replace(self, choices=left) if left else None

    def without(self, value: Value) -> Room:
        """The room without this value, as a choice; unchanged if it has too many values to list, or no other."""
        told = self.choices
        if not told and self.dimension.dtype == "int":
            told = tuple(
                n for low, high in self.spans for n in range(int(low), int(high) + 1)[: MOST_TOLD + 1]
            )
        others = tuple(each for each in told if not same(each, value))
        return Room(self.dimension, choices=others) if others and len(told) <= MOST_TOLD else self

    def near(self, value: Numeric, share: float) -> Room:
        """Its values within this share of the dimension's range on either side of `value`."""
        dimension = self.dimension
        low, high = ends_of(dimension)
        start, end = _scaled_span(dimension, low, high)
        apart, at = share * (end - start), _scaled(dimension, value)
        if dimension.dtype == "int":
            apart = max(1, apart)  # a short range has neighbours, too
        return self.inside(_unscaled(dimension, at - apart), _unscaled(dimension, at + apart)) or Room(
            dimension, choices=(value,)
        )

    def extremes(self, share: float) -> Room:
        """The first and the last share of each span; all of a choice."""
        if self.choices:
            return self
        found: list[Span] = []
        for low, high in self.spans:
            start, end = _scaled_span(self.dimension, low, high)
            apart = share * (end - start)
            ends = (
                (low, _unscaled(self.dimension, start + apart)),
                (_unscaled(self.dimension, end - apart), high),
            )
            for n, (first, last) in enumerate(_whole_span(self.dimension, *each) for each in ends):
                found.append((first, last) if first <= last else ((low, low), (high, high))[n])
        return replace(self, spans=tuple(found))


def room_of(dimension: Dimension, allowed: Allowed | None = None) -> Room | None:
    """All values of a dimension that a constraint allows; None if it allows none."""
    whole = (
        Room(dimension, choices=tuple(dimension.categories))
        if dimension.categories is not None
        else Room(dimension, spans=(_whole_span(dimension, *ends_of(dimension)),))
    )
    if allowed is None:
        return whole
    if isinstance(allowed, Mapping):
        return whole.inside(allowed.get("min", -math.inf), allowed.get("max", math.inf))
    values = allowed if isinstance(allowed, Sequence) and not isinstance(allowed, str) else [allowed]
    own: list[Value] = []
    for each in values:
        value = own_value(dimension, each)
        if value is not None and not any(same(value, known) for known in own):
            own.append(value)
    return Room(dimension, choices=tuple(own)) if own else None


def own_value(dimension: Dimension, value: Value) -> Value | None:
    """A value in the dimension's type, a float with 3 significant digits; None if the dimension lacks it."""
    if dimension.dtype in ("float", "float_log") and not isinstance(value, bool | str):
        low, high = ends_of(dimension)
        lowest, highest = short_within(low, high)
        value = min(max(short(value), lowest), highest) if low <= value <= high else value
    try:
        return value_of(dimension, value)
    except Invalid:
        return None


def at(dimension: Dimension, share: float) -> float:
    """The number at a share (0 to 1) of the dimension's range, not rounded."""
    start, end = _scaled_span(dimension, *ends_of(dimension))
    return _unscaled(dimension, start + share * (end - start))


# -- scales


def _whole_span(dimension: Dimension, low: Numeric, high: Numeric) -> Span:
    """The span of values that may be proposed. If there are none, its first end is above the second."""
    if not low <= high:
        return 1, 0
    if dimension.dtype == "int":
        return math.ceil(low), math.floor(high)
    lowest, highest = short_within(low, high)
    if 0 < abs(lowest) < SMALLEST_FLOAT:
        lowest = SMALLEST_FLOAT if lowest > 0 else 0.0
    if 0 < abs(highest) < SMALLEST_FLOAT:
        highest = 0.0 if highest > 0 else -SMALLEST_FLOAT
    return lowest, highest


def _scaled_span(dimension: Dimension, low: Numeric, high: Numeric) -> tuple[float, float]:
    return _scaled(dimension, low), _scaled(dimension, high)


def _scaled(dimension: Dimension, value: Numeric) -> float:
    return math.log(value) if dimension.dtype == "float_log" else float(value)


def _unscaled(dimension: Dimension, scaled: float) -> float:
    return math.exp(scaled) if dimension.dtype == "float_log" else scaled


def _valued(dimension: Dimension, scaled: float, span: Span) -> Numeric:
    """The value at a place of the scale, inside a span."""
    low, high = span
    number = _unscaled(dimension, scaled)
    if dimension.dtype == "int":
        return min(max(round(number), low), high)
    return min(max(short(number) if abs(number) >= SMALLEST_FLOAT else 0.0, low), high)


END: Final = 1 / 5
"""Width of either end, as a share of the range in its own scale. Effects are often largest there."""

Sections = Mapping[str, Room]
"""Sections by name; a name holds the first and the last value."""


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
    """The sections of the values that a claim allows; a frozen dimension has only its frozen value."""
    if dimension.frozen and dimension.frozen_value is not None:
        return sections_of(Room(dimension, choices=(dimension.frozen_value,)))
    room = room_of(dimension, allowed)
    return {} if room is None else sections_of(room)


def section_of(value: Value, sections: Sections) -> str | None:
    """The section that holds a value, the first one if two do; None: no section does."""
    return next((name for name, room in sections.items() if room.holds(value)), None)


def is_alone(value: Value, room: Room) -> bool:
    """Whether a section has this value and no other."""
    return room.single and room.holds(value)


def _name(room: Room) -> str:
    return ",".join(f"{low!r}..{high!r}" for low, high in room.spans)
