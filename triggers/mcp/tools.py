"""The tools: which functions each of them calls, and what an agent is told of it.

Names, texts, fields, roles and refusals are the function table's. A tool of several functions takes `what`, which
says which one, and the fields of all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from functions.contract import Function
from functions.schemas import schema_of
from state.errors import Invalid

Functions = Mapping[str, Function[Any, Any]]
Schema = Mapping[str, Any]

WHAT = "what"
NAMES: Mapping[str, Mapping[str, str]] = {
    "brief": {"brief": "report::brief", "setup": "experiment::setup"},
    "suggest": {
        "direction": "search::suggest_direction",
        "select": "trace::select",
        "release": "trace::release",
    },
    "submit": {"train": "experiment::submit", "register": "experiment::register"},
    "wait": {"wait": "experiment::wait"},
    "report": {"complete": "experiment::complete", "crash": "experiment::crash"},
    "query": {
        "best": "experiment::best",
        "history": "experiment::history",
        "near_misses": "experiment::near_misses",
        "experiment": "experiment::get",
    },
    "diff": {"diff": "report::diff"},
    "stop": {"stop": "experiment::stop"},
}
"""Functions by tool and by `what`; the first is the one that is meant where `what` is missing."""
ENDS = frozenset({"experiment::stop"})
"""What a client may ask its user about first: a run that was stopped is gone."""


@dataclass(frozen=True)
class Tool:
    """One tool."""

    name: str
    choices: Functions
    """By `what`; of a tool of one function, that one."""
    schema: Schema = field(repr=False)

    @property
    def text(self) -> str:
        """What it does; of several functions, each one's with what it needs."""
        if len(self.choices) == 1:
            return self.first.description
        return "\n".join(
            f"{WHAT}={what}: {declared.description}{_needs(declared)}"
            for what, declared in self.choices.items()
        )

    @property
    def usual(self) -> str:
        """What is meant where `what` is missing."""
        return next(iter(self.choices))

    @property
    def first(self) -> Function[Any, Any]:
        return self.choices[self.usual]

    @property
    def writes(self) -> bool:
        return any(declared.writes for declared in self.choices.values())

    @property
    def ends(self) -> bool:
        return any(declared.name in ENDS for declared in self.choices.values())

    def chosen(self, arguments: Mapping[str, Any]) -> tuple[Function[Any, Any], dict[str, Any]]:
        """The function that is meant, and its request.

        Raises:
            Invalid: `what` names none.
        """
        if len(self.choices) == 1:
            return self.first, dict(arguments)
        fields = {name: value for name, value in arguments.items() if name != WHAT}
        what = arguments.get(WHAT, self.usual)
        declared = self.choices.get(what) if isinstance(what, str) else None
        if declared is None:
            raise Invalid(
                f"{WHAT} is none of {', '.join(self.choices)}", hint=f"send one of them as {WHAT!r}"
            )
        return declared, fields


def tools_of(functions: Functions) -> Mapping[str, Tool]:
    """All tools by name."""
    tools = {}
    for name, named in NAMES.items():
        choices = {what: functions[function] for what, function in named.items()}
        tools[name] = Tool(name, choices, _schema(choices))
    return tools


def _needs(declared: Function[Any, Any]) -> str:
    required = schema_of(declared.request, "request").get("required", [])
    return f" Needs {', '.join(required)}." if required else ""


def _schema(choices: Functions) -> Schema:
    """The fields of all of these functions as one object: clients take no alternatives at its top."""
    schemas = {what: schema_of(declared.request, "request") for what, declared in choices.items()}
    if len(schemas) == 1:
        return next(iter(schemas.values()))
    what = {
        "type": "string",
        "enum": list(choices),
        "default": next(iter(choices)),
        "description": "which of these is meant",
    }
    names = dict.fromkeys(name for schema in schemas.values() for name in schema.get("properties", {}))
    defs = {name: found for schema in schemas.values() for name, found in schema.get("$defs", {}).items()}
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {WHAT: what, **{name: _property(name, schemas) for name in names}},
        "required": [name for name in names if all(name in s.get("required", []) for s in schemas.values())],
        **({"$defs": defs} if defs else {}),
    }


def _property(name: str, schemas: Mapping[str, Schema]) -> Schema:
    """A field of several functions: as all of them have it, else as each has it, and for which it is."""
    found = {what: s["properties"][name] for what, s in schemas.items() if name in s.get("properties", {})}
    different = list(_different(found))
    if len(different) == 1:
        if len(found) == len(schemas):
            return different[0][1]
        (whats, schema), *_ = different
        return _for(whats, schema)
    return {"anyOf": [_for(whats, schema) for whats, schema in different]}


def _different(found: Mapping[str, Schema]) -> Iterator[tuple[list[str], Schema]]:
    """Each schema once, with the functions that have it."""
    told: list[Schema] = []
    for schema in found.values():
        if schema not in told:
            told.append(schema)
            yield [what for what, other in found.items() if other == schema], schema


def _for(whats: list[str], schema: Schema) -> Schema:
    text = schema.get("description")
    meant = f"for {WHAT}={', '.join(whats)}"
    return {**schema, "description": f"{meant}: {text}" if text else meant}
