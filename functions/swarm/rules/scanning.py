"""Suggests a dimension for a constant of a train.py: a range around its value, for a person to edit."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from pydantic import ValidationError

from functions.kernel.rules.credentials import is_credential
from functions.swarm.rules.dimensions import MOST, DeclaredDimension, checked, reserved, short, short_within
from state.errors import Invalid

LOG_BELOW = 0.1
"""Floats up to it are varied by factors: learning rates, decays, epsilons."""
POWER_OF_TWO = 16
"""From here on a power of two stays one: batch sizes, widths."""
NO_CHOICES: Mapping[str, Sequence[str]] = MappingProxyType({})
FROM_ZERO = 4
"""Highest int that is proposed for a constant that is 0."""

_UNTOUCHED = re.compile(r"(^|_)(path|paths|dir|file|filename|url|host)($|_)", re.I)
_BUDGET = re.compile(r"(wall_clock|time_budget|time_limit|timeout|max_time|total_time)", re.I)
_PLACE = re.compile(r"[/\\]|^~|\.[A-Za-z][A-Za-z0-9]{1,4}$")


@dataclass(frozen=True)
class Scanned:
    """Dimensions that the constants of a script suggest."""

    found: Sequence[tuple[DeclaredDimension, object]]
    """Each dimension with the present value of its constant."""
    left_out: Mapping[str, str]
    """Constants that no search should change, or that are not a single value, with the reason."""


def scanned(constants: Mapping[str, object], choices: Mapping[str, Sequence[str]] = NO_CHOICES) -> Scanned:
    """The dimensions that these constants suggest, in their order; `choices` lists the other values of texts."""
    found: list[tuple[DeclaredDimension, object]] = []
    left_out: dict[str, str] = {}
    for name, value in constants.items():
        suggested = suggestion(name, value, choices.get(name, ()))
        if isinstance(suggested, str):
            left_out[name] = suggested
        elif suggested.categories is not None and len(suggested.categories) == 1:
            left_out[name] = (
                f"{ascii(value)[:60]}, and nothing says what else it may be: list that in a comment on its line"
            )
        elif len(found) == MOST:
            left_out[name] = f"a tag has at most {MOST} dimensions"
        else:
            found.append((suggested, value))
    return Scanned(found, left_out)


def is_budget(name: str) -> bool:
    """Whether a constant of this name holds the seconds of a run."""
    return _BUDGET.search(name) is not None


def suggestion(name: str, value: object, choices: Sequence[str] = ()) -> DeclaredDimension | str:
    """A dimension for this constant, or why there is none. A text needs `choices` for more than one category."""
    if reason := untouched(name, value):
        return reason
    match value:
        case bool():
            fields: dict[str, object] = {"dtype": "categorical", "categories": [value, not value]}
        case int():
            fields = _around_int(value)
        case float() if math.isfinite(value):
            fields = _around_float(value)
        case str():
            fields = {"dtype": "categorical", "categories": [*choices] or [value]}
        case _:
            return "not a number, text, true or false"
    try:
        return _declared(name, fields, value)
    except (Invalid, ValidationError):
        pass  # so near to 1 that no short number lies between, or too large to double
    try:
        return _declared(name, {"dtype": "categorical", "categories": [value]}, value)
    except Invalid as problem:
        return problem.detail.partition(": ")[2]
    except ValidationError:
        return "a number of too many digits"


def _declared(name: str, fields: Mapping[str, object], value: object) -> DeclaredDimension:
    """The dimension with these fields. Raises Invalid, ValidationError: it is not valid, or lacks the value."""
    declared = DeclaredDimension.model_validate({"name": name[:64], **fields})
    dimension = checked(declared.model_copy(update={"name": name}))
    low, high = dimension.min, dimension.max
    if isinstance(value, float) and low is not None and high is not None and not low <= value <= high:
        raise Invalid(f"dimension {name!r}: its value is outside")
    return declared


def untouched(name: str, value: object) -> str | None:
    """The reason why no search may change a constant with this name or value; None: it may."""
    if name.startswith("_"):
        return "a private name"
    if reason := reserved(name):
        return reason
    if is_budget(name):
        return "a time limit: it would change what runs are compared by"
    if _UNTOUCHED.search(name):
        return "by its name a place"
    if is_credential(name, value):
        return "by its name or its value a secret"
    if isinstance(value, str) and _PLACE.search(value):
        return "a path or a file's name"
    return None


def _around_int(value: int) -> dict[str, object]:
    if value >= POWER_OF_TWO and value & (value - 1) == 0:
        return {"dtype": "categorical", "categories": [value // 4, value // 2, value, value * 2, value * 4]}
    if value == 0:
        return {"dtype": "int", "min": 0, "max": FROM_ZERO}
    near, far = max(abs(value) // 2, 1), max(abs(value) * 2, 4)
    low, high = (near, far) if value > 0 else (-far, -near)
    return {"dtype": "int", "min": low, "max": high}


def _around_float(value: float) -> dict[str, object]:
    if 0 < value <= LOG_BELOW:
        low, high = value / 10, value * 10
    elif value == 0:
        low, high = 0.0, 1.0
    elif 0.9 <= value < 1:  # a momentum: what counts is how far it is from 1
        low, high = max(round(1 - 10 * (1 - value), 9), 0.0), short_within(0.0, 1 - (1 - value) / 10)[1]
    elif 0 < value < 1:
        low, high = value / 2, min(value * 2, 1.0)
    else:
        low, high = sorted((value / 2, value * 2))
    dtype = "float_log" if 0 < value <= LOG_BELOW else "float"
    return {"dtype": dtype, "min": short(low), "max": short(high)}
