"""Constraints of a hypothesis, which fix values of its runs, and the reference config that they need."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

from functions.beliefs.rules.evidence import about
from functions.swarm.rules.dimensions import LARGEST_FLOAT, MOST_CATEGORIES, same, value_of
from functions.swarm.rules.rooms import own_value, room_of
from functions.swarm.rules.shapes import Shape, contradictions
from state.errors import Invalid
from state.records import Dimension, Hypothesis, Value

SHORT_NAME: Final = 2
"""Names up to this many letters match in their own case only: "a" is mostly no dimension A."""


def checked_constraint(constraint: Mapping[str, Any], dimensions: Sequence[Dimension]) -> dict[str, Any]:
    """The constraint with values of the dimensions' types: 8.0 becomes 8 for ints, and floats are rounded.

    Raises:
        Invalid: a dimension is unknown, a value is outside its range, no value is allowed, or a dimension is frozen
            at a value that is not allowed. It names the field.
    """
    known = {d.name: d for d in dimensions}
    found: dict[str, Any] = {}
    for name, allowed in constraint.items():
        if name not in known:
            _refuse(
                f"config_constraint: {name[:64]!r} is no dimension of this tag",
                f"they are {', '.join(known) or 'none'}",
            )
        found[name] = _allowed(known[name], allowed, f"config_constraint.{name}")
    for problem in contradictions(dimensions, Shape("investigate", constraint=found)):
        _refuse(f"config_constraint: {problem}", "unfreeze the dimension first, or allow the value")
    return found


def checked_value(dimension: Dimension, value: object, field: str) -> Value:
    """The value in the dimension's type, with 3 significant digits. Raises Invalid, naming the field."""
    if isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        own = own_value(dimension, value)
        if own is not None:
            return own
    try:
        return value_of(dimension, value)
    except Invalid as problem:
        raise Invalid(f"{field}: {problem.detail}", hint=problem.hint) from problem


def known_dimensions(names: Sequence[str], dimensions: Sequence[Dimension]) -> list[str]:
    """The names, each once. Raises Invalid: a name is no dimension; it names the field."""
    known = [d.name for d in dimensions]
    for name in names:
        if name not in known:
            _refuse(
                f"dimensions: {name[:64]!r} is no dimension of this tag",
                f"they are {', '.join(known) or 'none'}",
            )
    return list(dict.fromkeys(names))


def named_dimensions(statement: str, names: Sequence[str]) -> list[str]:
    """The dimensions that a statement names, in their order; "learning rate" is LEARNING_RATE, too."""
    return [name for name in names if _spelling(name).search(statement)]


def with_rival(
    hypothesis: Hypothesis, reference: Mapping[str, Value], dimensions: Sequence[Dimension]
) -> dict[str, Value]:
    """The reference config of a hypothesis, made from `reference`.

    All runs of "OPTIMIZER adam is best" have adam, so they need a reference config without it. `reference` changes
    only where the constraint pins every dimension of the claim to the reference's value. Then the first of these
    dimensions that has another value takes it.
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


def _spelling(name: str) -> re.Pattern[str]:
    text = r"[\s_-]+".join(re.escape(part) for part in name.split("_") if part) or re.escape(name)
    return re.compile(rf"(?<!\w){text}(?!\w)", 0 if len(name) <= SHORT_NAME else re.IGNORECASE)


def _allowed(dimension: Dimension, allowed: object, field: str) -> Any:
    if isinstance(allowed, Mapping):
        return _range(dimension, allowed, field)
    if isinstance(allowed, list | tuple):
        if not 1 <= len(allowed) <= MOST_CATEGORIES:
            _refuse(f"{field}: a list has 1 to {MOST_CATEGORIES} values, not {len(allowed)}", "shorten it")
        return [checked_value(dimension, value, f"{field}[{n}]") for n, value in enumerate(allowed)]
    return checked_value(dimension, allowed, field)


def _range(dimension: Dimension, allowed: Mapping[object, object], field: str) -> dict[str, int | float]:
    if not allowed or not allowed.keys() <= {"min", "max"}:
        _refuse(
            f"{field}: {dict(allowed)!r:.80} is no range",
            'write a value, a list of values, or {"min": ..., "max": ...} with one of them or both',
        )
    found: dict[str, int | float] = {}
    for end, value in allowed.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            _refuse(f"{field}.{end}: {value!r:.80} is no number", "write it without quotes")
        if not abs(value) <= LARGEST_FLOAT:  # nor is NaN
            _refuse(f"{field}.{end}: {value!r:.80} is too large", f"numbers go up to {LARGEST_FLOAT:g}")
        low, high = dimension.min, dimension.max
        if low is not None and high is not None and not low <= value <= high:
            _refuse(
                f"{field}.{end}: {value!r} is outside the dimension's range",
                f"it goes from {low!r} to {high!r}",
            )
        found[str(end)] = value
    if room_of(dimension, found) is None:
        _refuse(f"{field}: no value of the dimension is in {found}", "widen the range")
    return found


def _refuse(problem: str, remedy: str) -> NoReturn:
    raise Invalid(problem, hint=remedy)


def _is_pinned(dimension: Dimension, allowed: Any, value: Value) -> bool:
    """Whether the constraint allows this value only."""
    if allowed is None:
        return False
    room = room_of(dimension, allowed)
    return room is not None and room.single and room.holds(value)


def _another(dimension: Dimension, value: Value) -> Value | None:
    """Another value of the dimension, preferably the middle of its range; None: it has no other."""
    room = room_of(dimension)
    assert room is not None
    values = room.choices or [room.level(share) for share in (0.5, 0.0, 1.0)]
    return next((each for each in values if not same(each, value)), None)
