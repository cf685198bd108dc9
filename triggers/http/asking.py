"""The request model of a call, from the path, the query and the body of its HTTP request."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any

from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request

from functions.contract import Function, Http
from functions.contract import Request as Asked
from functions.validation import invalid
from state.errors import Invalid, by_problem
from triggers.http.bodies import parsed, read_body
from triggers.http.turns import Turns


async def asked(declared: Function[Any, Any], door: Http, request: Request, turns: Turns) -> Asked:
    """The request model. Values of a body have their JSON types; in a URL everything is text, so numbers are read.

    Raises:
        Invalid: it does not validate, or one field stands in the query and in the body. Whatever reading a body
            raises.
    """
    model: type[Asked] = declared.request
    try:
        if door.method != "POST":
            return model.model_validate({**request.query_params, **request.path_params})
        body = await read_body(request, door.body_limit)
        return await turns.do(
            lambda: model.model_validate(_fields(model, door, request, parsed(body)), strict=True),
            lambda _: len(body),
        )
    except ValidationError as problem:
        raise invalid(problem) from problem


def _fields(model: type[Asked], door: Http, request: Request, body: dict[str, Any]) -> dict[str, Any]:
    """The fields of a POST."""
    by_body = body if door.body is None else {door.body: body}
    by_query = _of_query(model, door, request.query_params) if door.query else {}
    if twice := sorted(by_body.keys() & by_query.keys()):
        raise _refused(dict.fromkeys(twice, "stands in the query and in the body"))
    return {**by_body, **by_query, **request.path_params}


def _of_query(model: type[Asked], door: Http, query: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a POST that its query holds, read from text as those of a GET are."""
    if unknown := sorted(query.keys() - {*door.query}):
        known = ", ".join(door.query)
        raise _refused({name[:200]: f"the query of this route holds only {known}" for name in unknown})
    found: dict[str, Any] = {}
    for name, text in query.items():
        try:
            found[name] = _reader(model, name).validate_python(text)
        except ValidationError as problem:
            raise _refused({name: problem.errors(include_url=False)[0]["msg"]}) from problem
    return found


@cache
def _reader(model: type[Asked], name: str) -> TypeAdapter[Any]:
    """What reads one field from text."""
    field = model.model_fields[name]
    kind: Any = field.annotation
    bounded: Any = Annotated
    return TypeAdapter(bounded[kind, *field.metadata] if field.metadata else kind)


def _refused(problems: Mapping[str, str]) -> Invalid:
    errors = [{"field": field, "problem": problem} for field, problem in problems.items()]
    return Invalid(
        by_problem(errors)[:1000],
        hint="correct the fields under `errors`; POST /api/function/list shows every request's schema",
        fields={"errors": errors[:50]},
    )
