"""Dimensions of a tag: validation, redefinition, freezing, and numbers of 3 significant digits."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from typing import Annotated, Any, NoReturn

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictStr, ValidationError, WithJsonSchema

from state.errors import Invalid, NotFound
from state.noise import is_seed
from state.records import Dimension, Dtype, Number, Value

MOST = 64
"""Dimensions of a tag."""
MOST_CATEGORIES = 50
LONGEST_TEXT = 200
"""Characters of a category."""
LARGEST_INT = 2**53
"""Clients that read every JSON number as a double misread larger ints."""
LARGEST_FLOAT, SMALLEST_FLOAT = 1e100, 1e-100
NAME = re.compile(r"(?!__)[A-Za-z_][A-Za-z0-9_]{0,63}")


class DeclaredDimension(BaseModel):
    """A dimension as a request or a dimensions.toml declares it."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)

    name: StrictStr = Field(
        description="a top-level constant of train.py", examples=["LEARNING_RATE"], max_length=64
    )
    dtype: Dtype = Field(
        description="float_log: a float that is varied by factors; categorical: one of `categories`"
    )
    min: Number | None = Field(None, description="lowest value; not of a categorical", examples=[0.0001])
    max: Number | None = Field(None, description="highest value; not of a categorical", examples=[0.1])
    categories: list[Value] | None = Field(
        None,
        min_length=1,
        max_length=MOST_CATEGORIES,
        description="all values of a categorical: numbers, texts, true or false",
        examples=[["adam", "sgd"]],
    )
    frozen: StrictBool = Field(
        False, description="begin it at `frozen_value`, where it stays until dimension::unfreeze"
    )
    frozen_value: Annotated[Value | None, WithJsonSchema({})] = Field(
        None, description="the value that it is frozen at", examples=[0.001]
    )
    is_canary: StrictBool = Field(False, description="on trial: only a share of the configs varies it")
    canary_prob: Number | None = Field(None, description="that share, above 0 and at most 1", examples=[0.12])


def reserved(name: str) -> str | None:
    """The reason why this constant cannot be a dimension; None: it can."""
    if name == "TOTAL_WALL_CLOCK_TIME":
        return "the budget of every run is written there"
    return "repeats of a config differ by their seed" if is_seed(name) else None


def checked(declared: DeclaredDimension) -> Dimension:
    """The declared dimension. Raises Invalid: contradictory fields, or a constant that cannot be one."""
    name = declared.name
    if not NAME.fullmatch(name) or keyword.iskeyword(name):
        _refuse(
            name,
            "this is no name of a constant",
            "letters, digits and _, at most 64, as train.py spells it; no name with __ in front",
        )
    if reason := reserved(name):
        _refuse(name, f"no dimension may be this constant: {reason}", "leave it out")
    shape = _categorical(declared) if declared.dtype == "categorical" else _range(declared)
    found = Dimension(name=name, dtype=declared.dtype, is_canary=declared.is_canary, **shape)
    if declared.canary_prob is not None:
        if not declared.is_canary or not 0 < declared.canary_prob <= 1:
            _refuse(
                name,
                f"canary_prob {declared.canary_prob!r}",
                "give a share above 0 to 1, with is_canary = true",
            )
        found = found.model_copy(update={"canary_prob": float(declared.canary_prob)})
    if declared.frozen != (declared.frozen_value is not None):
        _refuse(name, "frozen and frozen_value come together", "give both, or neither")
    if declared.frozen_value is None:
        return found
    value = value_of(found, declared.frozen_value)
    return found.model_copy(update={"frozen": True, "frozen_value": value})


def value_of(dimension: Dimension, value: object) -> Value:
    """A value in the dimension's type: 1 is 1.0 as float, 2.0 is 2 as int. Raises Invalid: not its value."""
    name, categories = dimension.name, dimension.categories
    if categories is not None:
        for category in categories:
            if same(category, value):
                return category
        _refuse(name, f"{_told(value)} is none of its categories", f"they are {_listed(categories)}")
    low, high = ends_of(dimension)
    number = _number(name, "value", value)
    if not low <= number <= high:
        _refuse(name, f"{_told(value)} is outside its range", f"it goes from {low!r} to {high!r}")
    if dimension.dtype == "int":
        return _int(name, "value", number)
    if not is_short(number):
        _refuse(
            name,
            f"{_told(value)} has more than {DIGITS} significant digits, which not every worker writes",
            f"take {short(number)!r}",
        )
    return float(number)


def ends_of(dimension: Dimension) -> tuple[int | float, int | float]:
    """The lowest and the highest value of a range."""
    assert dimension.min is not None
    assert dimension.max is not None
    return dimension.min, dimension.max


def complete(dimensions: Sequence[Dimension]) -> list[Dimension]:
    """The dimensions of a tag, checked together. Raises Invalid: too many, or two of one name."""
    if len(dimensions) > MOST:
        raise Invalid(
            f"{len(dimensions)} dimensions: a tag has at most {MOST}",
            hint="leave out those that matter least; every one more makes the search slower",
        )
    names = [d.name for d in dimensions]
    for name in names:
        if names.count(name) > 1:
            _refuse(name, "there are two dimensions of this name", "keep one of them")
    return list(dimensions)


def violations(dimensions: Sequence[Dimension]) -> Iterator[str]:
    fields = set(DeclaredDimension.model_fields)
    for dimension in dimensions:
        try:
            checked(DeclaredDimension.model_validate(dimension.model_dump(include=fields)))
        except (Invalid, ValidationError) as problem:
            yield str(problem)
    try:
        complete(dimensions)
    except Invalid as problem:
        yield problem.detail


# -- changes of a tag's dimensions


@dataclass(frozen=True)
class Definition:
    """A tag's dimensions after a definition, and the changes."""

    dimensions: Sequence[Dimension]
    added: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    froze: list[Dimension] = field(default_factory=list)

    @property
    def changes(self) -> bool:
        return bool(self.added or self.changed or self.removed)


def definition_events(
    made: Definition, tag: str, *, by: str, profile: str | None
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The data of the events: of the definition, and of each dimension that begins frozen, by its name."""
    event = {
        "tag": tag,
        "by": by,
        "profile": profile,
        "count": len(made.dimensions),
        "added": made.added,
        "changed": made.changed,
        "removed": made.removed,
    }
    froze = {
        d.name: {"name": d.name, "value": d.frozen_value, "reason": d.frozen_reason, "by": by}
        for d in made.froze
    }
    return event, froze


DECLARED_FROZEN = "declared frozen"
"""The reason of a freeze that a dimensions.toml asks for."""


def defined(
    before: Sequence[Dimension], given: Sequence[Dimension], *, replace: bool, by: str, at: float
) -> Definition:
    """The tag's dimensions after `given` ones were added, or took the place of those with the same name.

    A dimension keeps its measurements while its dtype stays, and it stays frozen. Others stay unless `replace`.

    Raises:
        Invalid: a frozen value is outside the new range; two dimensions have one name; or there are too many.
    """
    complete(given)
    known, new = {d.name: d for d in before}, {d.name: d for d in given}
    laid = {name: _over(known.get(name), d, by, at) for name, d in new.items()}
    kept = {} if replace else known
    return Definition(
        complete([*({**kept, **laid}).values()]),
        added=[name for name in new if name not in known],
        changed=[name for name in new if name in known and _text(laid[name]) != _text(known[name])],
        removed=[name for name in known if replace and name not in new],
        froze=[d for d in laid.values() if d.frozen and d.frozen_at == at],
    )


def _text(dimension: Dimension) -> str:
    """A dimension as text, for comparison: in Python true equals 1."""
    return dimension.model_dump_json()


def _over(before: Dimension | None, given: Dimension, by: str, at: float) -> Dimension:
    """A dimension that takes the place of another."""
    measured: dict[str, Any] = {}
    if before is not None and before.dtype == given.dtype:
        measured = {name: getattr(before, name) for name in ("importance", "interaction", "n_samples")}
    if (
        before is not None
        and before.frozen
        and (not given.frozen or given.frozen_value == before.frozen_value)
    ):
        try:
            value = value_of(given, before.frozen_value)
        except Invalid as problem:
            raise Invalid(
                f"{problem.detail}, and it is frozen there",
                hint="unfreeze it with POST /api/dimension/unfreeze first, or keep the value in its range",
            ) from problem
        freeze = {"frozen": True, "frozen_value": value, "frozen_by": before.frozen_by}
        freeze |= {"frozen_at": before.frozen_at, "frozen_reason": before.frozen_reason}
    elif given.frozen:
        freeze = {"frozen_by": by, "frozen_at": at, "frozen_reason": DECLARED_FROZEN}
    else:
        freeze = {}
    return given.model_copy(update=measured | freeze)


def named(dimensions: Sequence[Dimension], name: str, tag: str) -> Dimension:
    """The dimension of this name. Raises NotFound: there is none."""
    for dimension in dimensions:
        if dimension.name == name:
            return dimension
    shown = ", ".join(d.name for d in dimensions)
    raise NotFound(
        f"{tag!r} has no dimension {name[:64]!r}",
        hint=f"it has {shown}" if shown else "define its dimensions with POST /api/dimension/define",
    )


def frozen(dimension: Dimension, value: object, *, by: str, at: float, reason: str) -> Dimension | None:
    """The dimension frozen at a value; None if it already is. Raises Invalid: not its value."""
    wanted = value_of(dimension, value)
    if dimension.frozen and same(dimension.frozen_value, wanted):
        return None
    freeze = {"frozen": True, "frozen_value": wanted}
    return dimension.model_copy(update=freeze | {"frozen_by": by, "frozen_at": at, "frozen_reason": reason})


def unfrozen(dimension: Dimension) -> Dimension | None:
    """The dimension without its freeze; None if it is not frozen."""
    if not dimension.frozen:
        return None
    nothing = dict.fromkeys(("frozen_value", "frozen_by", "frozen_at", "frozen_reason"))
    return dimension.model_copy(update={"frozen": False, **nothing})


def with_one(dimensions: Sequence[Dimension], changed: Dimension) -> list[Dimension]:
    return [changed if d.name == changed.name else d for d in dimensions]


# -- ranges and categories


def _range(declared: DeclaredDimension) -> dict[str, Any]:
    name, is_int = declared.name, declared.dtype == "int"
    if declared.min is None or declared.max is None or declared.categories is not None:
        _refuse(name, f"a {declared.dtype} has min and max, and no categories", "give both")
    low, high = _number(name, "min", declared.min), _number(name, "max", declared.max)
    if is_int:
        low, high = _int(name, "min", low), _int(name, "max", high)
    if not low < high:
        _refuse(name, f"min {low!r} is not below max {high!r}", "swap them, or widen the range")
    if declared.dtype == "float_log" and low <= 0:
        _refuse(name, f"min {low!r} of a float_log is not above 0", 'raise it, or use dtype = "float"')
    if is_int:
        return {"min": low, "max": high}
    lowest, highest = short_within(low, high)
    if not lowest < highest:
        _refuse(
            name,
            f"from {low!r} to {high!r} there are not two values of {DIGITS} significant digits, the most that a"
            " proposed value has",
            "widen the range",
        )
    return {"min": float(low), "max": float(high)}


def _categorical(declared: DeclaredDimension) -> dict[str, Any]:
    name, categories = declared.name, declared.categories
    if not categories or declared.min is not None or declared.max is not None:
        _refuse(name, "a categorical has categories, and no min and max", 'e.g. categories = ["adam", "sgd"]')
    seen: set[tuple[bool, Value]] = set()
    for category in categories:
        if isinstance(category, str):
            _check_text(name, category)
        elif not isinstance(category, bool):
            _number(name, "a category", category)
        if key_of(category) in seen:
            _refuse(name, f"the category {_told(category)} stands there twice", "keep it once")
        seen.add(key_of(category))
    return {"categories": list(categories)}


def _check_text(name: str, text: str) -> None:
    if len(text) > LONGEST_TEXT:
        _refuse(name, f"a category has {len(text)} characters", f"at most {LONGEST_TEXT}")
    if not text.isprintable():
        _refuse(name, f"the category {_told(text)} has characters that are not printable", "leave them out")


def _number(name: str, what: str, value: object) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse(name, f"{what} {_told(value)} is no number", "write it without quotes")
    if isinstance(value, int):
        if abs(value) > LARGEST_INT:
            _refuse(name, f"{what} is too large", f"ints go up to {LARGEST_INT} (2**53)")
        return value
    if not math.isfinite(value) or not (value == 0 or SMALLEST_FLOAT <= abs(value) <= LARGEST_FLOAT):
        _refuse(
            name,
            f"{what} {value!r} is no usable number",
            f"sizes go from {SMALLEST_FLOAT} to {LARGEST_FLOAT}",
        )
    return value


def _int(name: str, what: str, number: int | float) -> int:
    if number != int(number):
        _refuse(name, f"{what} {number!r} is no whole number", 'round it, or use dtype = "float"')
    if abs(number) > LARGEST_INT:
        _refuse(name, f"{what} is too large", f"ints go up to {LARGEST_INT} (2**53)")
    return int(number)


def key_of(value: Value) -> tuple[bool, Value]:
    """Equal for values that are the same: in Python true is 1, too; in JSON only 1.0 is."""
    return isinstance(value, bool), value


def same(one: object, other: object) -> bool:
    """Whether two values are equal in JSON: 1 and 1.0 are, 1 and true are not."""
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def _told(value: object) -> str:
    """A value of any size as a short text."""
    if isinstance(value, int) and value.bit_length() > 200:
        return "a number of many digits"
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:60]}..."


def _listed(values: Sequence[object]) -> str:
    return ", ".join(map(_told, values[:10])) + (", ..." if len(values) > 10 else "")


def _refuse(name: str, problem: str, remedy: str) -> NoReturn:
    raise Invalid(f"dimension {name[:64]!r}: {problem}", hint=remedy)


DIGITS = 3


def short(value: float) -> float:
    """The number rounded to 3 significant digits."""
    return _rounded(value, ROUND_HALF_EVEN)


def is_short(value: float) -> bool:
    return short(value) == value


def short_within(low: float, high: float) -> tuple[float, float]:
    """Lowest and highest number of a range with at most 3 significant digits; low is above high if there is none."""
    return _rounded(low, ROUND_CEILING), _rounded(high, ROUND_FLOOR)


def _rounded(value: float, rounding: str) -> float:
    # from its shortest text: 0.1 is 0.1, not the binary number slightly above it
    return float(Context(prec=DIGITS, rounding=rounding).plus(Decimal(repr(value))))
