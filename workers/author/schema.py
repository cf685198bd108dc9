"""The JSON schema of a form in a version that every provider accepts, without references and pydantic's keywords."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

_OF_PYDANTIC = frozenset({"$defs", "title", "discriminator"})


def schema_of(kind: type[BaseModel]) -> dict[str, Any]:
    """The form's schema without references, which some providers do not follow."""
    schema = kind.model_json_schema()
    found = _plain(schema, schema.get("$defs", {}))
    assert isinstance(found, dict)
    return found


def _plain(part: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(part, list):
        return [_plain(each, definitions) for each in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        named = definitions[part["$ref"].removeprefix("#/$defs/")]
        part = {**named, **{key: value for key, value in part.items() if key != "$ref"}}
    found: dict[str, Any] = {}
    for key, value in part.items():
        if key in _OF_PYDANTIC or (key == "default" and value is None):
            continue
        if key == "properties":
            found[key] = {name: _plain(field, definitions) for name, field in value.items()}
        elif key == "oneOf":
            found["anyOf"] = _plain(value, definitions)
        elif key == "const":
            found["enum"] = [value]
        else:
            found[key] = _plain(value, definitions)
    return found
