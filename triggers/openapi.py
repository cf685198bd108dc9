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
    """Every route of every function, with schemas; errors are problem documents."""
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
                    "200" if declared.lane == "web" else "202": _answered(answer, name, schemas),
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
    whole = _schema(declared.request, declared.name, schemas)
    in_path = set(re.findall(r"{(\w+)}", door.path))
    properties: dict[str, Any] = schemas[whole].get("properties", {})
    required = set(schemas[whole].get("required", []))
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
        body = f"#/components/schemas/{whole}"
        asked["requestBody"] = {
            "required": bool(required - in_path),
            "content": {"application/json": {"schema": {"$ref": body}}},
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


def _answered(answer: type[BaseModel], name: str, schemas: dict[str, Any]) -> dict[str, Any]:
    if issubclass(answer, Picture):
        return {"description": "a picture", "content": {"image/png": {}, "image/svg+xml": {}}}
    ref = f"#/components/schemas/{_schema(answer, name, schemas)}"
    return {"description": "the answer", "content": {"application/json": {"schema": {"$ref": ref}}}}


def _schema(model: type[BaseModel], function: str, schemas: dict[str, Any]) -> str:
    """Add a model's schema under its own name; returns the name."""
    name = f"{function.replace('::', '_')}_{model.__name__}"
    if name not in schemas:
        schema = model.model_json_schema(ref_template=f"#/components/schemas/{name}.{{model}}")
        for inner, definition in schema.pop("$defs", {}).items():
            schemas[f"{name}.{inner}"] = definition
        schemas[name] = schema
    return name
