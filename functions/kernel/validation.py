"""Checks requests against their models. An error names the fields and their problems, never a value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from functions.kernel.contract import Function, Request
from state.errors import Invalid, by_problem

NAMED = 3
"""Fields that the detail of a refusal names; `errors` has more."""


def validated(declared: Function[Any, Any], request: BaseModel | Mapping[str, object]) -> Request:
    """`request` as the function's own model. Raises Invalid: with one entry per field under `errors`."""
    model: type[Request] = declared.request
    if isinstance(request, model):
        return request
    try:
        return model.model_validate(request)
    except ValidationError as problem:
        raise invalid(problem) from problem


def invalid(problem: ValidationError) -> Invalid:
    """pydantic's findings as our own error, without the values (they may be megabytes, or secret)."""
    errors = [
        {
            "field": ".".join(str(part) for part in e["loc"])[:200] or "body",
            "problem": e["msg"].removeprefix("Value error, "),
        }
        for e in problem.errors(include_url=False, include_context=False, include_input=False)
    ]
    return _invalid(errors)


def invalid_fields(problems: Mapping[str, str]) -> Invalid:
    return _invalid([{"field": field, "problem": problem} for field, problem in problems.items()])


def _invalid(errors: list[dict[str, str]]) -> Invalid:
    more = f" (and {len(errors) - NAMED} more)" if len(errors) > NAMED else ""
    return Invalid(
        by_problem(errors[:NAMED]) + more,
        hint="correct the fields under `errors`; POST /api/function/list shows every request's schema",
        fields={"errors": errors[:50]},
    )
