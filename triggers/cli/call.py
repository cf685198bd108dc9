"""`nightjar call noun::verb --field value` calls any function of the running lab.

Functions and their fields come from the lab's OpenAPI document. So they have the lab's version, and no code of them
is imported here, which would take longer than the call.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import urlencode

import click

from state.errors import Invalid, NightjarError
from triggers.cli.lab_http import LabHttp
from triggers.cli.options import FolderPath, data_option, lab_option, settings_from
from triggers.cli.output import BY_STATUS, Suggesting, print_json, printable

FUNCTION, DEFAULT, FILLS = "x-function", "x-default", "x-fills"
"""Our extensions in /openapi.json: an operation's function, defaults of path parameters, and the field that is the
whole body."""
Schema = Mapping[str, Any]
_METAVARS = {"string": "TEXT", "integer": "INTEGER", "number": "NUMBER", "boolean": "true|false"}


@dataclass(frozen=True)
class Operation:
    """One way to call a function."""

    function: str
    method: str
    path: str
    description: str
    fields: Mapping[str, Schema]
    required: frozenset[str]
    defaults: Mapping[str, str]
    """Defaults of path parameters."""
    in_query: frozenset[str]
    fills: str | None
    """The field that is the whole body."""


class Calls(Suggesting):
    """One subcommand per function of the lab, with options for its fields."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_operations(**_lab_of(ctx)))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        operations = _operations(**_lab_of(ctx)).get(cmd_name)
        return _command(operations) if operations else None


@click.group(cls=Calls, subcommand_metavar="NOUN::VERB [--FIELD VALUE]...")
@data_option
@lab_option
def command(data: str | None, lab: str | None) -> None:
    """Call a function of the running lab; prints its JSON answer, or the drawing that was asked for.

    `nightjar call NOUN::VERB --help` shows its fields. Values are text, or JSON where the field is no text.
    """


def _lab_of(context: click.Context) -> dict[str, Any]:
    return {name: context.params.get(name) for name in ("data", "lab")}


@cache
def _operations(**lab: Any) -> Mapping[str, Sequence[Operation]]:
    """The operations of each function, POST first. If no lab answers, those of this checkout."""
    try:
        document = LabHttp(settings_from(**lab), anonymous=True).ask("GET", "/openapi.json")
    except NightjarError:
        document = None  # why, the call itself will tell
    found: dict[str, list[Operation]] = {}
    for operation in _read(document if isinstance(document, dict) and "paths" in document else _own()):
        found.setdefault(operation.function, []).append(operation)
    return {name: sorted(ways, key=lambda way: way.method != "POST") for name, ways in found.items()}


def _own() -> dict[str, Any]:
    from functions.kernel.table import table
    from triggers.openapi import openapi

    return openapi(table())


def _read(document: Mapping[str, Any]) -> list[Operation]:
    schemas = document["components"]["schemas"]
    return [
        _operation(path, method, told, schemas)
        for path, methods in document["paths"].items()
        for method, told in methods.items()
        if FUNCTION in told
    ]


def _operation(path: str, method: str, told: Mapping[str, Any], schemas: Mapping[str, Schema]) -> Operation:
    of_url = [parameter for parameter in told["parameters"] if parameter["in"] != "header"]
    fields: dict[str, Schema] = {
        parameter["name"]: {**parameter["schema"], "description": parameter.get("description", "")}
        for parameter in of_url
    }
    required = {one["name"] for one in of_url if one["required"] and DEFAULT not in one}
    body = told.get("requestBody", {})
    fills: str | None = body.get(FILLS)
    if body:
        schema = body["content"]["application/json"]["schema"]
        if fills is not None:
            schema = {"properties": {fills: schema}, "required": [fills] if body["required"] else []}
        else:
            schema = schemas[schema["$ref"].rpartition("/")[2]]
        fields = {**schema.get("properties", {}), **fields}
        required.update(schema.get("required", []))
    in_query = frozenset(one["name"] for one in of_url if one["in"] == "query")
    defaults = {one["name"]: one[DEFAULT] for one in of_url if DEFAULT in one}
    name, text = told[FUNCTION], told["summary"]
    return Operation(name, method.upper(), path, text, fields, frozenset(required), defaults, in_query, fills)


def _command(operations: Sequence[Operation]) -> click.Command:
    first = operations[0]

    def run(**given: str | None) -> int:
        parent = click.get_current_context().parent
        assert parent is not None
        lab = {name: given.pop(f"_{name}") or before for name, before in _lab_of(parent).items()}
        body = {
            name: _value(name, first.fields[name], text) for name, text in given.items() if text is not None
        }
        answer = _ask(LabHttp(settings_from(**lab)), operations, body)
        if isinstance(answer, bytes):
            sys.stdout.buffer.write(answer)
            return 0
        if not isinstance(answer, dict):  # a list
            print_json(answer)
            return 0
        if answer.get("drawing"):
            click.echo("\n".join(printable(line) for line in answer["drawing"].splitlines()))
        else:
            print_json(answer)
        # What is waited for says how it ended; everything else was simply answered.
        return BY_STATUS.get(str(answer.get("status")), 0) if first.function == "experiment::wait" else 0

    options: list[click.Parameter] = [
        click.Option(
            [f"--{name.replace('_', '-')}", name],
            required=name in first.required,
            help=schema.get("description", ""),
            metavar=_metavar(schema),
        )
        for name, schema in first.fields.items()
    ]
    options += [
        click.Option(["--data", "_data"], type=FolderPath(), help="as before the function's name"),
        click.Option(["--lab", "_lab"], help="as before the function's name"),
        click.Option(["--json", "_json"], is_flag=True, expose_value=False, help="(always JSON)"),
    ]
    return click.Command(first.function, params=options, callback=run, help=first.description)


def _ask(http: LabHttp, operations: Sequence[Operation], body: dict[str, Any]) -> Any:
    """Call the first operation whose path the fields fill. Raises click.UsageError: a value does not fit."""
    in_path, way = next(
        (names, way)
        for way in operations
        if body.keys() | way.defaults.keys() >= (names := set(re.findall(r"{(\w+)}", way.path)))
    )
    path = way.path.format(**{**way.defaults, **body})
    query = {name: value for name, value in body.items() if name in way.in_query}
    rest = {name: value for name, value in body.items() if name not in in_path and name not in query}
    sent = rest if way.fills is None else rest.get(way.fills, {})
    try:
        return http.ask(way.method, f"{path}?{urlencode(query)}" if query else path, sent)
    except Invalid as problem:
        told = problem.fields.get("problem")
        if isinstance(told, dict) and "errors" in told:
            raise click.UsageError(printable(problem.detail)) from problem
        raise


def _value(name: str, schema: Schema, text: str) -> Any:
    """Text if the field takes text, else JSON. Raises click.UsageError: it needs a list or object, and is no JSON."""
    if _takes(schema, "string"):
        return text
    try:
        return json.loads(text)
    except ValueError as problem:
        if _takes(schema, "object", "array"):
            raise click.UsageError(f"{name} is not JSON: {problem}") from None
        return text  # the lab says what it takes


def _metavar(schema: Schema) -> str:
    """The metavar of a field: its choices, or its kind of value."""
    one = next((of for of in schema.get("anyOf", ()) if of.get("type") != "null"), schema)
    if "enum" in one:
        return "|".join(map(str, one["enum"]))
    return _METAVARS.get(one.get("type", ""), "JSON")


def _takes(schema: Schema, *kinds: str) -> bool:
    return schema.get("type") in kinds or any(_takes(one, *kinds) for one in schema.get("anyOf", ()))
