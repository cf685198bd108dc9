"""What makes a proposed dimension: which ones say the same, what is wrong with one, and how its trial begins."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Sequence
from hashlib import sha256

from pydantic import ValidationError

from functions.rules.swarm.digits import short
from functions.rules.swarm.dimensions import MOST, DeclaredDimension, checked, same
from functions.rules.swarm.rooms import own_value
from functions.rules.swarm.scanning import untouched
from functions.rules.swarm.shapes import CANARY_SHARE
from state.errors import Invalid
from state.records import Dimension, ProposedDimension, Value

LARGEST_INT_SPAN = 1024
LARGEST_RATIO = 1e4
"""Of a float_log: its highest value over its lowest."""
LARGEST_SPAN = 1e6
"""Of any other float."""
CATEGORIES = (2, 8)
"""Fewest and most."""
IMPORTANCE = 0.08
"""Of a dimension on trial, until it is measured."""
ID_DIGITS = 8


def id_of(proposal: ProposedDimension) -> str:
    """`dim_` and 8 hexadecimal digits: equal for two proposals of the same dimension.

    Two proposals are of the same dimension if name, dtype and range are equal. Names are compared without case,
    spaces and underscores, floats in 3 significant digits, categories in any order; 1 equals 1.0. Default, rationale
    and line are not compared.
    """
    said = [spelling(proposal.name), proposal.dtype, *map(_number, (proposal.min, proposal.max))]
    said += sorted(map(_number, proposal.categories or []))
    return f"dim_{sha256(json.dumps(said).encode()).hexdigest()[:ID_DIGITS]}"


def spelling(name: str) -> str:
    """A name without what people spell in different ways."""
    return name.replace(" ", "").replace("_", "").casefold()


def problems(proposal: ProposedDimension, dimensions: Sequence[Dimension]) -> Iterator[str]:
    """Why it could not be a dimension beside those of its tag; none: it could."""
    try:
        dimension = checked(_declared(proposal))
    except (Invalid, ValidationError) as problem:
        yield problem.detail if isinstance(problem, Invalid) else "its fields contradict each other"
        return
    known = next((d.name for d in dimensions if spelling(d.name) == spelling(proposal.name)), None)
    if known is not None:
        yield f"the tag has {known} already"
    if len(dimensions) >= MOST:
        yield f"the tag has {MOST} dimensions already"
    yield from _unbounded(dimension)
    values = [proposal.default_value, *(proposal.categories or [])]
    if reason := next((r for value in values if (r := untouched(proposal.name, value))), None):
        yield f"it is not tried: {reason}"
    default = own_value(dimension, proposal.default_value)
    if default is None:
        yield f"its default {proposal.default_value!r:.60} is none of its values"
    elif proposal.train_py_line is not None and not _sets(proposal.train_py_line, proposal.name, default):
        yield f"train_py_line does not set {proposal.name} to its default {default!r:.60}"


def line_of(proposal: ProposedDimension) -> str:
    """The line that a train.py without the constant lacks."""
    return proposal.train_py_line or f"{proposal.name} = {proposal.default_value!r}"


def on_trial(proposal: ProposedDimension) -> Dimension:
    """The dimension of a proposal without problems, as its trial begins."""
    dimension = checked(_declared(proposal))
    return dimension.model_copy(
        update={
            "is_canary": True,
            "canary_prob": CANARY_SHARE,
            "importance": IMPORTANCE,
            "default_value": own_value(dimension, proposal.default_value),
        }
    )


def _declared(proposal: ProposedDimension) -> DeclaredDimension:
    fields = {name: getattr(proposal, name) for name in ("name", "dtype", "min", "max", "categories")}
    return DeclaredDimension.model_validate(fields)


def _unbounded(dimension: Dimension) -> Iterator[str]:
    """What makes its range too large, or its categories too few or too many."""
    if dimension.categories is not None:
        fewest, most = CATEGORIES
        if not fewest <= len(dimension.categories) <= most:
            yield f"it has {len(dimension.categories)} categories: {fewest} to {most} may be tried"
        return
    assert dimension.min is not None
    assert dimension.max is not None
    low, high = dimension.min, dimension.max
    if dimension.dtype == "int" and high - low > LARGEST_INT_SPAN:
        yield f"its range spans {high - low}: at most {LARGEST_INT_SPAN} may be tried"
    if dimension.dtype == "float_log" and high / low > LARGEST_RATIO:
        yield f"max is {high / low:.3g} times min: at most {LARGEST_RATIO:g} times may be tried"
    if dimension.dtype != "int" and high - low > LARGEST_SPAN:
        yield f"its range spans {high - low:.3g}: at most {LARGEST_SPAN:g} may be tried"


def _sets(line: str, name: str, default: Value) -> bool:
    """Whether it is one line that binds the name to the default, and no other."""
    try:
        body = ast.parse(line.strip()).body
    except (SyntaxError, ValueError):
        return False
    match body:
        case [
            ast.Assign(targets=[ast.Name(id=bound)], value=value)
            | ast.AnnAssign(target=ast.Name(id=bound), value=ast.expr() as value)
        ]:
            return bound == name and "\n" not in line.strip() and _is(value, default)
    return False


def _is(value: ast.expr, default: Value) -> bool:
    try:
        found = ast.literal_eval(value)
    except (ValueError, TypeError):
        return False
    return same(found, default) or (_is_float(found) and same(short(float(found)), default))


def _is_float(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: Value | None) -> str:
    """One text for one value: whole numbers as they are, others in 3 significant digits."""
    if value is None or isinstance(value, bool | str):
        return json.dumps(value)
    return json.dumps(float(value) if value == int(value) else short(float(value)))
