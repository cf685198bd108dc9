"""JSON Schemas of requests and answers, as /openapi.json and function::list show them.

They have no titles: client generators name classes by titles, and of several classes with one name they keep one. A
text under a field in its class is the field's description.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import sys
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.json_schema import CoreModeRef, CoreRef, DefsRef, GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from functions.formats.parsing import parsed
from functions.kernel.contract import Function, Sparse

Side = Literal["request", "answer"]
AT_ITSELF = "#/$defs/{model}"
"""Where a schema refers to the schemas of its fields, unless told."""

_made: dict[tuple[type[BaseModel], Side, str], Mapping[str, Any]] = {}

NULL = {"type": "null"}
YOURS = {"nightjar_functions"}
"""Modules and packages with functions of your own. Two of them may give a model the same name."""
SAID_OUTSIDE = ("description", "examples")
"""What is said of a value holds for the union of it and null, too."""


async def prepare(functions: Mapping[str, Function[Any, Any]], ref_template: str = AT_ITSELF) -> None:
    """Make the schemas of all functions, one in a turn: all together would hold the event loop for half a second."""
    for declared in functions.values():
        for row in (declared, declared.accept):
            if row is not None:
                schema_of(row.request, "request", ref_template)
                await asyncio.sleep(0)
                schema_of(row.response, "answer", ref_template)
                await asyncio.sleep(0)


def schema_of(model: type[BaseModel], side: Side, ref_template: str = AT_ITSELF) -> Mapping[str, Any]:
    """The schema of a request or an answer, made once; an answer has all its fields."""
    asked = (model, side, ref_template)
    if asked not in _made:
        mode: Literal["validation", "serialization"] = "validation" if side == "request" else "serialization"
        _made[asked] = model.model_json_schema(ref_template=ref_template, schema_generator=_Schema, mode=mode)
    return _made[asked]


def name_of(module: str, name: str, side: Side) -> str:
    """A model's name among schemas: the class's; of one of yours `<module>_<class>-<side>`, which no two share."""
    if not any(module == each or module.startswith(f"{each}.") for each in YOURS):
        return name
    return f"{module.removeprefix('nightjar_functions.').replace('.', '_')}_{name}-{side}"


class _Schema(GenerateJsonSchema):
    def get_defs_ref(self, core_mode_ref: CoreModeRef) -> DefsRef:
        reference, mode = core_mode_ref
        side: Side = "request" if mode == "validation" else "answer"
        named = re.sub(r"([\w.]+)\.(\w+)(?=:)", lambda found: name_of(found[1], found[2], side), reference)
        return super().get_defs_ref((CoreRef(named), mode))

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def field_is_required(self, field: Any, total: bool) -> bool:
        is_told = self.mode == "serialization" and "serialization_exclude_if" not in field
        return is_told or super().field_is_required(field, total)

    def get_default_value(self, schema: core_schema.WithDefaultSchema) -> Any:
        factory = schema.get("default_factory") if self.mode == "serialization" else None
        return factory() if factory in (list, dict) else super().get_default_value(schema)

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        described = _described(super().model_schema(schema), schema["cls"])
        if self.mode == "validation":
            return _with_examples(described)
        return _without_null(described) if issubclass(schema["cls"], Sparse) else described

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        return _described(super().dataclass_schema(schema), schema["cls"])

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        nullable = super().nullable_schema(schema)
        inner = nullable.get("anyOf", [{}])[0]
        said = {name: inner.pop(name) for name in SAID_OUTSIDE if name in inner}
        return {**nullable, **said}


def _described(schema: JsonSchemaValue, model: type) -> JsonSchemaValue:
    """The schema of a class with its fields' texts, without its title."""
    schema.pop("title", None)
    texts = {name: text for base in reversed(model.__mro__) for name, text in _texts(base).items()}
    for name, field in schema.get("properties", {}).items():
        if name in texts:
            field.setdefault("description", texts[name])
    return schema


def _with_examples(schema: JsonSchemaValue) -> JsonSchemaValue:
    """Each field of a request with an example: its own, else its default, else the first of its choices."""
    for field in schema.get("properties", {}).values():
        choices = field.get("enum") or ([False] if field.get("type") == "boolean" else [])
        shown = [*([field["default"]] if field.get("default") not in (None, "", [], {}) else []), *choices]
        if "examples" not in field and shown:
            field["examples"] = shown[:1]
    return schema


def _without_null(schema: JsonSchemaValue) -> JsonSchemaValue:
    """A sparse answer's: fields that may be None are not required instead, and never null."""
    for name, field in schema.get("properties", {}).items():
        if NULL in field.get("anyOf", ()):
            left = [of for of in field.pop("anyOf") if of != NULL]
            field.update(left[0] if len(left) == 1 else {"anyOf": left})
            field.pop("default", None)
            schema["required"].remove(name)
    if not schema.get("required", True):
        del schema["required"]
    return schema


def _texts(model: type) -> Mapping[str, str]:
    """The text under each field of a class; none for a class that is not ours."""
    ours = model.__module__.partition(".")[0] in ("functions", "state", "nightjar_functions")
    return _texts_of_module(model.__module__).get(model.__name__, {}) if ours else {}


@cache
def _texts_of_module(module: str) -> Mapping[str, Mapping[str, str]]:
    """The same for every class of a module. Read from its source, since a running class has forgotten them."""
    body = parsed(inspect.getsource(sys.modules[module])).body
    return {part.name: _texts_under(part.body) for part in body if isinstance(part, ast.ClassDef)}


def _texts_under(body: list[ast.stmt]) -> Mapping[str, str]:
    texts: dict[str, str] = {}
    for field, text in pairwise(body):
        match field, text:
            case (ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str() as said))):
                texts[name] = " ".join(said.split())
    return texts
