"""Whether a function's routes fit its request, and whether its answer can be sent."""

from __future__ import annotations

import re
from typing import Any, get_origin

from pydantic import BaseModel, RootModel

from functions.contract import Function, Http, Picture, Text


def fields_of_path(path: str) -> frozenset[str]:
    """The fields that a path fills."""
    return frozenset(re.findall(r"{(\w+)}", path))


def contradiction(declared: Function[Any, Any], door: Http) -> str | None:
    """Why this route cannot serve the function; None where it can."""
    fields = declared.request.model_fields
    in_path = fields_of_path(door.path)
    of_body = () if door.body is None else (door.body,)
    required = {name for name, field in fields.items() if field.is_required()} - in_path
    if door.method != "POST" and (door.query or door.body is not None):
        return "only a POST declares query or body: the query of other methods has all fields"
    if unknown := {*in_path, *door.query, *of_body} - fields.keys():
        return f"{declared.request.__name__} has no field {_named(unknown)}"
    if twice := {
        name for name in (*door.query, *of_body) if (*in_path, *door.query, *of_body).count(name) > 1
    }:
        return f"{_named(twice)} would come from two places"
    if door.body is not None and (missing := required - {*door.query, door.body}):
        return f"no request can have {_named(missing)}: name it in the path or in query"
    if door.method == "POST" and door.body is None and (needed := required & {*door.query}):
        return f"{_named(needed)} may stand in the query or in the body: give it a default"
    if door.has_etag and door.method == "DELETE":
        return "a DELETE has no ETag"
    return None


def unsendable(declared: Function[Any, Any]) -> str | None:
    """Why the answer cannot be sent; None where it can."""
    answer: Any = declared.response
    if not isinstance(answer, type) or not issubclass(answer, BaseModel):
        return f"the answer {answer!r} is no model, nor a model or None"
    if issubclass(answer, RootModel) and get_origin(answer.model_fields["root"].annotation) is not list:
        return f"{answer.__name__} is no list: a RootModel answers a list[X]"
    if issubclass(answer, Picture | Text) and declared.keeps_answer:
        return f"{answer.__name__} cannot be kept for a repeated call: declare keeps_answer=False"
    return None


def _named(fields: set[str]) -> str:
    return ", ".join(map(repr, sorted(fields)))
