"""The OpenAPI 3.1 document, from the function table.

Client generators read it: tests/triggers/test_openapi.py says what they need.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Literal

from pydantic import BaseModel

from functions.contract import BadTable, Function, Http, Picture
from functions.schemas import schema_of
from state.version import VERSION
from triggers.http.identity import COOKIE

AMONG_SCHEMAS = "#/components/schemas/{model}"
"""Where a schema of the document refers to another."""
PROBLEM = {
    "type": "object",
    "description": "What is wrong, and what to do; some problems have further fields.",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "description": "the kind of problem, as a URI"},
        "title": {"type": "string", "description": "the kind of problem in words"},
        "status": {"type": "integer", "description": "the HTTP status"},
        "detail": {"type": "string", "description": "what is wrong this time"},
        "hint": {"type": "string", "description": "what to do next"},
        "retry_after": {"type": "number", "description": "seconds"},
        "errors": {
            "type": "array",
            "description": "what is wrong with single fields of the request",
            "items": {"$ref": "#/components/schemas/FieldProblem"},
        },
    },
}
FIELD_PROBLEM = {
    "type": "object",
    "required": ["field", "problem"],
    "properties": {
        "field": {"type": "string", "description": "where it stands, with dots between the levels"},
        "problem": {"type": "string", "description": "what is wrong with it"},
    },
}
SECURITY_SCHEMES = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "A token of token::issue. A lab that has issued none asks for none.",
    },
    "workerToken": {
        "type": "apiKey",
        "in": "header",
        "name": "X-Worker-Token",
        "description": "The same token in a header of its own.",
    },
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": COOKIE,
        "description": "A browser that signed in. Its writes need the header X-Nightjar-Page, too.",
    },
}
IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "the same key and body again gives the first answer",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
    "example": "6f9b0f8e-5a43-4c39-9d4e-3a7b2f1c8d10",
}


def openapi(functions: Mapping[str, Function[Any, Any]]) -> dict[str, Any]:
    """The document: every route of every function, schemas by the models' names, errors as problem documents."""
    schemas: dict[str, Any] = {"Problem": PROBLEM, "FieldProblem": FIELD_PROBLEM}
    paths: dict[str, dict[str, Any]] = {}
    for name, declared in functions.items():
        answer = declared.accept.response if declared.accept else declared.response
        for nth, door in enumerate(declared.doors):
            operation = name.replace("::", "_") + (f"_{nth + 1}" if nth else "")
            paths.setdefault(door.path, {})[door.method.lower()] = {
                "operationId": operation,
                "summary": declared.description,
                "tags": [name.partition("::")[0]],
                "x-function": name,
                "x-role": list(declared.roles),
                **({"security": []} if "anyone" in declared.roles else {}),
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
        "info": {"title": "Nightjar", "version": VERSION},
        "security": [*({scheme: []} for scheme in SECURITY_SCHEMES), {}],
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": SECURITY_SCHEMES},
    }


def _asked(declared: Function[Any, Any], door: Http, schemas: dict[str, Any]) -> dict[str, Any]:
    body = _reference(declared.request, "request", schemas)
    in_path = set(re.findall(r"{(\w+)}", door.path))
    request = schemas[declared.request.__name__]
    properties: dict[str, Any] = request.get("properties", {})
    required = set(request.get("required", []))
    asked: dict[str, Any] = {
        "parameters": [
            _parameter(field, schema, in_path=field in in_path, required=field in in_path | required)
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
            asked["parameters"].append(IDEMPOTENCY_KEY)
    return asked


def _parameter(name: str, schema: dict[str, Any], *, in_path: bool, required: bool) -> dict[str, Any]:
    """A part of the URL: text, so it cannot be null."""
    schema = deepcopy(schema)
    if "anyOf" in schema:
        (told,) = [of for of in schema.pop("anyOf") if of != {"type": "null"}]
        schema |= told
    default = schema.pop("default", None) if in_path or schema.get("default", "") is None else None
    shown: dict[str, Any] = {
        "description": schema.pop("description", ""),
        "example": schema.pop("examples", [None])[0],
    }
    said = {key: value for key, value in shown.items() if value not in ("", None)}
    return {
        "name": name,
        "in": "path" if in_path else "query",
        "required": required,
        **said,
        **({} if default is None else {"x-default": default}),
        "schema": schema,
    }


def _answered(answer: type[BaseModel], schemas: dict[str, Any]) -> dict[str, Any]:
    if issubclass(answer, Picture):
        picture = {"schema": {"type": "string", "format": "binary"}}
        return {"description": "a picture", "content": {"image/png": picture, "image/svg+xml": picture}}
    schema = _reference(answer, "answer", schemas)
    return {"description": "the answer", "content": {"application/json": {"schema": schema}}}


def _reference(
    model: type[BaseModel], side: Literal["request", "answer"], schemas: dict[str, Any]
) -> dict[str, str]:
    """A reference to a model's schema, which is added with those of its fields.

    Raises:
        BadTable: two schemas of one name.
    """
    schema = dict(schema_of(model, side, AMONG_SCHEMAS))
    for name, found in (*schema.pop("$defs", {}).items(), (model.__name__, schema)):
        if schemas.setdefault(name, found) != found:
            raise BadTable(f"{name!r} names two schemas: give one of the models another name")
    return {"$ref": f"#/components/schemas/{model.__name__}"}
