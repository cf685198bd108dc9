"""What a hypothesis declares of its runs: constraints with the reference config, and its test_spec.

A constraint fixes values. A test_spec has the cells of a test, their runs, and the rule that decides.
"""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Annotated, Any, Final, Literal, NoReturn

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, ValidationError

from functions.beliefs.rules.evidence import about
from functions.swarm.rules.dimensions import LARGEST_FLOAT, MOST_CATEGORIES, same, value_of
from functions.swarm.rules.rooms import own_value, room_of
from functions.swarm.rules.shapes import Shape, contradictions
from state.errors import Invalid
from state.records import Dimension, Hypothesis, Value

# -- Constraints, which fix values of runs, and the reference config that they need.

SHORT_NAME: Final = 2
"""Names up to this many letters match in their own case only: "a" is mostly no dimension A."""


def checked_constraint(constraint: Mapping[str, Any], dimensions: Sequence[Dimension]) -> dict[str, Any]:
    """The constraint with values of the dimensions' types: 8.0 becomes 8 for ints, and floats are rounded.

    Raises Invalid, naming the field: a dimension is unknown, a value is outside its range, no value is allowed, or a
    dimension is frozen at a value that is not allowed.
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


# -- The test_spec: the cells of a test, their runs, and the rule that decides.

MOST_RUNS: Final = 1000
"""Runs of a test."""
MOST_VALUES: Final = 50
"""Values of a dimension."""
Decision = Literal["threshold", "significant"]
Exact = Annotated[float, Field(strict=True)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


class DecisionRule(_Part):
    """The effect that a win needs."""

    threshold: Exact = Field(gt=0, description="in units of the metric; of a ranking's agreement 0 to 1")
    decision: Decision | None = Field(
        None,
        description="threshold: the estimate reaches it; significant: it surely does; default: threshold",
    )


class StopCondition(_Part):
    """The end of a test: a minimum of runs, or an earlier end at a given confidence."""

    min_total_runs: StrictInt | None = Field(
        default=None, ge=1, le=MOST_RUNS, description="runs before which the test does not end"
    )
    or_confidence: Exact | None = Field(
        default=None,
        ge=0.5,
        lt=1,
        description="1 less the P value at which it ends before each cell has its runs",
    )


class _Spec(_Part):
    min_runs_per_cell: StrictInt = Field(3, ge=1, le=50, description="runs of each cell that is compared")
    fixed: dict[str, Any] = Field(
        default_factory=dict, description="values of further dimensions in all cells, by name"
    )
    decision_rule: DecisionRule = Field(description="what the effect must be for a win")
    stop_condition: StopCondition = Field(StopCondition(), description="when the test ends")

    @property
    @abstractmethod
    def axes(self) -> list[tuple[str, Sequence[Value]]]:
        """The dimensions that the cells vary, with their values."""


class SingleFactorEffect(_Spec):
    """A test whether some values of a dimension are better: the worst arm's mean less the best arm's."""

    type: Literal["single_factor_effect"] = Field(description="the test's name")
    variable: StrictStr = Field(description="the dimension that is varied")
    values: list[Any] = Field(
        min_length=2, max_length=MOST_VALUES, description="its values that are compared"
    )

    @property
    def axes(self) -> list[tuple[str, Sequence[Value]]]:
        return [(self.variable, self.values)]


class InteractionGrid(_Spec):
    """A test whether the effects of two dimensions depend on each other: the mean size of the residuals."""

    type: Literal["interaction_grid"] = Field(description="the test's name")
    variables: list[StrictStr] = Field(min_length=2, max_length=2, description="two dimensions")
    grid: dict[str, list[Any]] = Field(description="the values of each of the two that are combined")
    """A list of two lists is read as theirs in order."""

    @property
    def axes(self) -> list[tuple[str, Sequence[Value]]]:
        return [(name, self.grid[name]) for name in self.variables]


class ThresholdTest(_Spec):
    """A test whether values on one side of a cut are better: the mean of the other side less theirs."""

    type: Literal["threshold_test"] = Field(description="the test's name")
    variable: StrictStr = Field(description="the dimension that is varied")
    values: list[Any] = Field(
        min_length=2, max_length=MOST_VALUES, description="its values that are compared"
    )
    cut: Annotated[float, Field(strict=True)] = Field(
        description="values from it on are above, the others below"
    )
    better: Literal["above", "below"] = Field(description="the side that the claim expects to be better")

    @property
    def axes(self) -> list[tuple[str, Sequence[Value]]]:
        return [(self.variable, self.values)]


class RankingConsistency(_Spec):
    """A test whether the ranking of a dimension's values depends on another one: Kendall's W of the rankings."""

    type: Literal["ranking_consistency"] = Field(description="the test's name")
    variable: StrictStr = Field(description="the dimension whose values are ranked")
    values: list[Any] = Field(min_length=2, max_length=5, description="its values")
    across: StrictStr = Field(description="the other dimension")
    across_values: list[Any] = Field(min_length=2, max_length=4, description="values of the other dimension")

    @property
    def axes(self) -> list[tuple[str, Sequence[Value]]]:
        return [(self.across, self.across_values), (self.variable, self.values)]


Spec = SingleFactorEffect | InteractionGrid | ThresholdTest | RankingConsistency
TYPES: Final[Mapping[str, type[Spec]]] = {
    "single_factor_effect": SingleFactorEffect,
    "interaction_grid": InteractionGrid,
    "threshold_test": ThresholdTest,
    "ranking_consistency": RankingConsistency,
}


def check_spec(test_spec: Mapping[str, Any], dimensions: Sequence[Dimension]) -> Spec:
    """The described test, with values of the dimensions' types.

    Raises Invalid, naming the field: the type or a field is wrong, a dimension is unknown or frozen, a value is
    outside its range or repeated, or the test needs more than 1000 runs.
    """
    given = dict(test_spec)
    kind = given.get("type")
    if not isinstance(kind, str) or kind not in TYPES:
        _refuse_spec("type", f"{kind!r:.80} is no test", f"there are {', '.join(TYPES)}")
    grid, variables = given.get("grid"), given.get("variables")
    if isinstance(grid, list) and isinstance(variables, list) and len(grid) == len(variables):
        given["grid"] = dict(zip(map(str, variables), grid, strict=True))
    try:
        spec = TYPES[kind].model_validate(given)
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_context=False, include_input=False)[0]
        field = ".".join(str(part)[:64] for part in first["loc"])
        fields = ", ".join(TYPES[kind].model_fields)
        _refuse_spec(field, first["msg"], f"the fields of {kind} are {fields}")
    return _with_values(spec, {d.name: d for d in dimensions})


def cells_of(spec: Spec) -> list[dict[str, Value]]:
    """The values of each cell in the varied dimensions; a grid row by row."""
    names = [name for name, _ in spec.axes]
    return [dict(zip(names, values, strict=True)) for values in product(*(v for _, v in spec.axes))]


def _with_values(spec: Spec, dimensions: Mapping[str, Dimension]) -> Spec:
    for name, field in _named(spec):
        if name not in dimensions:
            _refuse_spec(
                field, f"{name[:64]!r} is no dimension of this tag", f"they are {', '.join(dimensions)}"
            )
        if dimensions[name].frozen and field.split(".")[0] != "fixed":
            _refuse_spec(field, f"{name!r} is frozen", "unfreeze it first, or test another dimension")
    axes = [name for name, _ in spec.axes]
    if len(set(axes)) < len(axes):
        _refuse_spec(
            "across" if isinstance(spec, RankingConsistency) else "variables",
            f"{axes[0]!r} is there twice",
            "name two",
        )
    for name in spec.fixed:
        if name in axes:
            _refuse_spec(f"fixed.{name}", "the test varies it", "leave it out")
    made: dict[str, Any] = {
        "fixed": {
            name: checked_value(dimensions[name], value, f"test_spec.fixed.{name}")
            for name, value in spec.fixed.items()
        }
    }
    match spec:
        case InteractionGrid():
            made["grid"] = {
                name: _values(dimensions[name], values, f"grid.{name}") for name, values in spec.axes
            }
        case RankingConsistency():
            made["across_values"] = _values(dimensions[spec.across], spec.across_values, "across_values")
            made["values"] = _values(dimensions[spec.variable], spec.values, "values")
        case _:
            made["values"] = _values(dimensions[spec.variable], spec.values, "values")
    found = spec.model_copy(update=made)
    if isinstance(found, ThresholdTest):
        _check_sides(found)
    if len(cells_of(found)) * found.min_runs_per_cell > MOST_RUNS:
        _refuse_spec(
            "min_runs_per_cell", f"the test takes more than {MOST_RUNS} runs", "take fewer values or runs"
        )
    return found


def _named(spec: Spec) -> list[tuple[str, str]]:
    """The dimensions that a spec names, each with its field."""
    fixed = [(name, f"fixed.{name}") for name in spec.fixed]
    match spec:
        case InteractionGrid():
            if spec.grid.keys() != set(spec.variables):
                _refuse_spec("grid", "it has other names than variables", "give the values of both variables")
            return [(name, f"variables.{n}") for n, name in enumerate(spec.variables)] + fixed
        case RankingConsistency():
            return [(spec.variable, "variable"), (spec.across, "across"), *fixed]
        case _:
            return [(spec.variable, "variable"), *fixed]


def _values(dimension: Dimension, values: Sequence[object], field: str) -> list[Value]:
    if not 2 <= len(values) <= MOST_VALUES:
        _refuse_spec(field, f"{len(values)} values", f"a test compares 2 to {MOST_VALUES}")
    found: list[Value] = []
    for n, value in enumerate(values):
        own = checked_value(dimension, value, f"test_spec.{field}.{n}")
        if any(same(own, known) for known in found):
            _refuse_spec(f"{field}.{n}", f"{own!r} is there twice", "keep it once")
        found.append(own)
    return found


def _check_sides(spec: ThresholdTest) -> None:
    numbers = [value for value in spec.values if not isinstance(value, bool | str)]
    if len(numbers) < len(spec.values):
        _refuse_spec("values", "a cut needs numbers", "name a dimension of numbers")
    if not min(numbers) < spec.cut <= max(numbers):
        _refuse_spec("cut", f"all values lie on one side of {spec.cut!r}", "give values on both")


def _refuse_spec(field: str, problem: str, remedy: str) -> NoReturn:
    raise Invalid(f"test_spec.{field}: {problem}", hint=remedy)
