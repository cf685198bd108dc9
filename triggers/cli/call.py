"""`nightjar call noun::verb --field value` calls any function of the running lab."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import click
from pydantic import BaseModel, ValidationError

from functions.contract import Function
from functions.schemas import schema_of
from functions.table import find, table
from functions.validation import invalid
from state.errors import Invalid
from triggers.cli.lab_http import LabHttp
from triggers.cli.options import data_option, lab_option, settings_from
from triggers.cli.output import BY_STATUS, print_json, printable


class Calls(click.Group):
    """One subcommand per row of the function table, its options made from the request model."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(table())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        declared = find(cmd_name)
        return None if declared is None else _command(declared)


@click.group(cls=Calls, subcommand_metavar="NOUN::VERB [--FIELD VALUE]...")
@data_option
@lab_option
@click.pass_context
def command(context: click.Context, data: str | None, lab: str | None) -> None:
    """Call a function of the running lab; prints its JSON answer, or the drawing that was asked for.

    `nightjar call NOUN::VERB --help` shows its fields. Values are text, or JSON where the field is no text.
    """
    context.obj = settings_from(data=data, lab=lab)


def _command(declared: Function[Any, Any]) -> click.Command:
    def run(**given: str | None) -> int:
        context = click.get_current_context()
        body = {
            name: _value(declared.request, name, text) for name, text in given.items() if text is not None
        }
        try:
            declared.request.model_validate(body)
        except ValidationError as problem:
            raise click.UsageError(invalid(problem).detail) from problem
        http = LabHttp(context.obj)
        answer = _ask(http, declared, body)
        if isinstance(answer, bytes):
            sys.stdout.buffer.write(answer)
            return 0
        if answer.get("drawing"):
            click.echo("\n".join(printable(line) for line in answer["drawing"].splitlines()))
        else:
            print_json(answer)
        # What is waited for says how it ended; everything else was simply answered.
        return BY_STATUS.get(str(answer.get("status")), 0) if declared.name == "experiment::wait" else 0

    described = schema_of(declared.request, "request").get("properties", {})
    options: list[click.Parameter] = [
        click.Option(
            [f"--{name.replace('_', '-')}", name],
            required=info.is_required(),
            help=described.get(name, {}).get("description", ""),
            metavar=_metavar(info.annotation),
        )
        for name, info in declared.request.model_fields.items()
    ]
    options.append(click.Option(["--json", "_json"], is_flag=True, expose_value=False, help="(always JSON)"))
    return click.Command(declared.name, params=options, callback=run, help=declared.description)


def _ask(http: LabHttp, declared: Function[Any, Any], body: dict[str, Any]) -> Any:
    """Through the first door whose path the given fields fill; POST before GET."""
    doors = sorted(declared.doors, key=lambda door: door.method != "POST")
    for door in doors:
        in_path = re.findall(r"{(\w+)}", door.path)
        values = declared.request.model_validate(body).model_dump()
        if all(values.get(name) is not None for name in in_path):
            path = door.path.format(**values)
            rest = {name: value for name, value in body.items() if name not in in_path}
            if door.method == "POST":
                return http.ask("POST", path, rest)
            query = "&".join(f"{name}={value}" for name, value in rest.items())
            return http.ask(door.method, f"{path}?{query}" if query else path)
    raise Invalid(f"{declared.name} cannot be called over HTTP")


def _value(model: type[BaseModel], name: str, text: str) -> Any:
    """Text where the field takes text, else JSON."""
    try:
        model.__pydantic_validator__.validate_assignment(model.model_construct(), name, text, strict=True)
    except ValidationError:
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


def _metavar(annotation: Any) -> str:
    text = getattr(annotation, "__name__", str(annotation))
    return re.sub(r"\btyping\.|\bAnnotated\[(\w+),.*", r"\1", text).upper()[:40]
