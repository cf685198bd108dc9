"""The OpenAPI 3.1 document, from the function table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from functions.contract import Function, Http, Picture

PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "hint": {"type": "string", "description": "what to do next"},
        "retry_after": {"type": "number", "description": "seconds"},
        "errors": {"type": "array", "items": {"type": "object"}},
    },
}


def openapi(functions: Mapping[str, Function[Any, Any]]) -> dict[str, Any]:
    """The document: every route of every function, schemas by the models' names, errors as problem documents."""
    schemas: dict[str, Any] = {"Problem": PROBLEM}
    paths: dict[str, dict[str, Any]] = {}
    for name, declared in functions.items():
        answer = declared.accept.response if declared.accept else declared.response
        for nth, door in enumerate(declared.doors):
            operation = name.replace("::", "_") + (f"_{nth + 1}" if nth else "")
            paths.setdefault(door.path, {})[door.method.lower()] = {
                "operationId": operation,
                "summary": declared.description,
                "tags": [name.partition("::")[0]],
                "x-role": list(declared.roles),
                **_asked(declared, door, schemas),
                "responses": {
                    "200" if declared.lane == "web" else "202": _answered(answer, schemas),
                    "default": {
                        "description": "what is wrong, and what to do",
                        "content": {
                            "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
                        },
                    },
                },
            }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Nightjar", "version": "0.1.0"},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _asked(declared: Function[Any, Any], door: Http, schemas: dict[str, Any]) -> dict[str, Any]:
    body = _reference(declared.request, schemas)
    in_path = set(re.findall(r"{(\w+)}", door.path))
    request = schemas[declared.request.__name__]
    properties: dict[str, Any] = request.get("properties", {})
    required = set(request.get("required", []))
    asked: dict[str, Any] = {
        "parameters": [
            {
                "name": field,
                "in": "path" if field in in_path else "query",
                "required": field in in_path or field in required,
                "schema": schema,
            }
            for field, schema in properties.items()
            if field in in_path or door.method != "POST"
        ]
    }
    if door.method == "POST":
        asked["requestBody"] = {
            "required": bool(required - in_path),
            "content": {"application/json": {"schema": body}},
        }
        if declared.writes:
            asked["parameters"].append(
                {
                    "name": "Idempotency-Key",
                    "in": "header",
                    "required": False,
                    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
                }
            )
    return asked


def _answered(answer: type[BaseModel], schemas: dict[str, Any]) -> dict[str, Any]:
    if issubclass(answer, Picture):
        return {"description": "a picture", "content": {"image/png": {}, "image/svg+xml": {}}}
    schema = _reference(answer, schemas)
    return {"description": "the answer", "content": {"application/json": {"schema": schema}}}


def _reference(model: type[BaseModel], schemas: dict[str, Any]) -> dict[str, str]:
    """A reference to a model's schema, which is added with those of its fields; their names are unique."""
    if model.__name__ not in schemas:
        schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= schema.pop("$defs", {}) | {model.__name__: schema}
    return {"$ref": f"#/components/schemas/{model.__name__}"}
