"""The OpenAPI 3.1 document, and the page /docs, both from the function table.

Client generators read the document: tests/triggers/test_openapi.py says what they need. The page is rendered on the
server and can be read offline.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from html import escape
from typing import Any, Literal

from pydantic import BaseModel, RootModel

from functions.kernel.contract import BadTable, Function, Http, Picture, Text
from functions.kernel.schemas import name_of, schema_of
from functions.kernel.table import fields_of_path
from state.program import VERSION
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

IF_NONE_MATCH = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "description": "ETags of answers that the client holds; one that still holds is answered 304 without a body",
    "schema": {"type": "string"},
    "example": '"5f0c2f7ad1b8f6c21d3f4a6b8c9d0e1f"',
}
ETAG = {"ETag": {"description": "names the answer", "schema": {"type": "string"}}}
FILLS = "x-fills"
"""The field of the request that the whole body of an operation fills."""


def openapi(functions: Mapping[str, Function[Any, Any]], *, public_reads: bool = True) -> dict[str, Any]:
    """The document: every route of every function, schemas by the models' names, errors as problem documents.

    `public_reads`: whether public functions ask for no token.
    """
    schemas: dict[str, Any] = {"Problem": PROBLEM, "FieldProblem": FIELD_PROBLEM}
    paths: dict[str, dict[str, Any]] = {}
    for name, declared in functions.items():
        for nth, door in enumerate(declared.doors):
            operation = name.replace("::", "_") + (f"_{nth + 1}" if nth else "")
            paths.setdefault(door.path, {})[door.method.lower()] = {
                "operationId": operation,
                "summary": declared.description,
                "tags": [name.partition("::")[0]],
                "x-function": name,
                "x-role": list(declared.roles),
                **({"security": []} if _is_open(declared, public_reads=public_reads) else {}),
                **_asked(declared, door, schemas),
                "responses": _responses(declared, door, schemas),
            }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Nightjar", "version": VERSION},
        "security": [*({scheme: []} for scheme in SECURITY_SCHEMES), {}],
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": SECURITY_SCHEMES},
    }


def _is_open(declared: Function[Any, Any], *, public_reads: bool) -> bool:
    """Whether it asks for no token, and learns nothing of one."""
    return (declared.is_public and public_reads) or ("anyone" in declared.roles and not declared.knows_caller)


def _asked(declared: Function[Any, Any], door: Http, schemas: dict[str, Any]) -> dict[str, Any]:
    body = _reference(declared.request, "request", schemas)
    in_path = fields_of_path(door.path)
    request = schemas[body["$ref"].rpartition("/")[2]]
    properties: dict[str, Any] = request.get("properties", {})
    required = set(request.get("required", []))
    asked: dict[str, Any] = {
        "parameters": [
            _parameter(field, schema, in_path=field in in_path, required=field in in_path | required)
            for field, schema in properties.items()
            if field in in_path or door.method != "POST" or field in door.query
        ]
    }
    if door.body is not None:
        is_required = door.body in required
        asked["requestBody"] = {"required": is_required, FILLS: door.body, **_json(properties[door.body])}
    elif door.method == "POST":
        asked["requestBody"] = {"required": bool(required - in_path), **_json(body)}
    if door.method == "POST" and declared.writes:
        asked["parameters"].append(IDEMPOTENCY_KEY)
    if door.has_etag:
        asked["parameters"].append(IF_NONE_MATCH)
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


def _responses(declared: Function[Any, Any], door: Http, schemas: dict[str, Any]) -> dict[str, Any]:
    answering = declared.answering
    answer = _answered(answering.response, schemas)
    found = {"200" if declared.lane == "web" else "202": answer}
    if answering.may_be_empty:
        found["204"] = {"description": "there is nothing to tell"}
    if door.has_etag:
        answer["headers"] = ETAG
        found["304"] = {"description": "the answer that If-None-Match names still holds", "headers": ETAG}
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {**found, "default": {"description": "what is wrong, and what to do", "content": problem}}


def _answered(answer: type[BaseModel], schemas: dict[str, Any]) -> dict[str, Any]:
    if issubclass(answer, Picture):
        picture = {"schema": {"type": "string", "format": "binary"}}
        return {"description": "a picture", "content": {"image/png": picture, "image/svg+xml": picture}}
    if issubclass(answer, Text):
        media_type = str(answer.model_fields["media_type"].default).partition(";")[0]
        return {"description": "a text", "content": {media_type: {"schema": {"type": "string"}}}}
    if issubclass(answer, RootModel):  # a bare array needs no name, its items have theirs
        array = dict(schema_of(answer, "answer", AMONG_SCHEMAS))
        _add(array.pop("$defs", {}), schemas)
        return {"description": "the answer", **_json(array)}
    return {"description": "the answer", **_json(_reference(answer, "answer", schemas))}


def _json(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}


def _reference(
    model: type[BaseModel], side: Literal["request", "answer"], schemas: dict[str, Any]
) -> dict[str, str]:
    """A reference to a model's schema, added with those of its fields. Raises BadTable: two of one name."""
    schema, name = (
        dict(schema_of(model, side, AMONG_SCHEMAS)),
        name_of(model.__module__, model.__name__, side),
    )
    _add({**schema.pop("$defs", {}), name: schema}, schemas)
    return {"$ref": AMONG_SCHEMAS.format(model=name)}


def _add(named: Mapping[str, Any], schemas: dict[str, Any]) -> None:
    for name, found in named.items():
        if schemas.setdefault(name, found) != found:
            raise BadTable(f"{name!r} names two schemas: give one of the models another name")


STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code, pre { font-family: ui-monospace, monospace; font-size: 0.92em; }
details { border-top: 1px solid #8885; padding: 0.4rem 0; }
summary { cursor: pointer; }
summary code { font-weight: 600; }
table { border-collapse: collapse; margin: 0.5rem 0 0.5rem 1rem; }
td, th { text-align: left; padding: 0.15rem 1rem 0.15rem 0; vertical-align: top; }
caption { text-align: left; opacity: 0.7; }
.role { opacity: 0.7; }
"""


def docs_page(functions: Mapping[str, Function[Any, Any]]) -> str:
    """HTML with a section per function: routes, role, fields of the request and of the answer."""
    rows = "\n".join(_section(name, declared) for name, declared in functions.items())
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Nightjar: functions</title>'
        f"<style>{STYLE}</style></head><body><h1>Nightjar</h1>"
        f"<p>{len(functions)} functions. Machine-readable: <a href='/openapi.json'>/openapi.json</a>, "
        "<a href='/api/function/list'>/api/function/list</a>; the lab's state: "
        "<a href='/api/lab/status'>/api/lab/status</a>.</p>"
        f"{rows}</body></html>"
    )


def _section(name: str, declared: Function[Any, Any]) -> str:
    fired = "<br>".join(f"<code>{escape(str(trigger))}</code>" for trigger in declared.triggers)
    answer = declared.answering.response
    asks = schema_of(declared.request, "request")
    says = {} if issubclass(answer, Picture | Text) else _fields_of(schema_of(answer, "answer"))
    return (
        f"<details><summary><code>{escape(name)}</code> {escape(declared.description)} "
        f"<span class='role'>({escape(', '.join(declared.roles))})</span></summary>"
        f"<p>{fired}</p>{_table('asks', asks)}{_table('answers', says)}</details>"
    )


def _fields_of(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema whose fields an answer has: of a bare array, that of its items."""
    if schema.get("type") != "array":
        return schema
    found: Mapping[str, Any] = schema["$defs"].get(schema["items"].get("$ref", "").rpartition("/")[2], {})
    return found


def _table(caption: str, schema: Mapping[str, Any]) -> str:
    """The fields of a request or an answer; of a request, which ones it must have."""
    required = schema.get("required", []) if caption == "asks" else []
    rows = "".join(
        f"<tr><td><code>{escape(field)}</code></td><td>{'required' if field in required else ''}</td>"
        f"<td>{escape(of.get('description', ''))}</td></tr>"
        for field, of in schema.get("properties", {}).items()
    )
    return f"<table><caption>{caption}</caption>{rows}</table>" if rows else ""
