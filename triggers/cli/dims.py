"""`nightjar dims` says what a swarm may vary: scan, define, ls."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from state.client_settings import ClientSettings
from state.errors import Invalid
from state.program import PROGRAM
from triggers.cli.lab_http import LabHttp
from triggers.cli.options import EXISTING_FILE, json_option, tag_argument, with_settings
from triggers.cli.output import counted, print_json, printable
from triggers.cli.runs import the_tag
from triggers.cli.tables import Column, print_table

DIMENSIONS = (
    *(Column("name"), Column("dtype"), Column("values", text=30), Column("frozen at")),
    *(
        Column("importance", right=True, spare=1),
        Column("with others", spare=1),
        Column("on trial", text=20, spare=2),
    ),
    *(Column("why frozen", text=20), Column("by", spare=3), Column("since", spare=4)),
)


@click.group(subcommand_metavar="COMMAND [--OPTION]...")
def command() -> None:
    """Say which constants of a train.py a swarm may vary.

    `scan` proposes a dimensions.toml, a person edits it, `define` loads it into a tag.
    """


@command.command()
@click.argument("script", metavar="TRAIN_PY", type=EXISTING_FILE)
@json_option
def scan(script: Path, as_json: bool) -> None:
    """Print a dimensions.toml for the top-level constants of TRAIN_PY. Nothing is run, and no lab is needed."""
    from functions.formats.dimensions import (
        scan as scanned,  # imported late: the other commands need no reader
    )
    from functions.formats.dimensions import scanned_file
    from functions.formats.parsing import decoded

    with _about(script):
        found = scanned(decoded(script.read_bytes())[0])
    if as_json:
        dimensions = [declared.model_dump(exclude_none=True) for declared, _ in found.found]
        print_json({"dimensions": dimensions, "left_out": dict(found.left_out)})
    else:
        click.echo(scanned_file(found, script.name), nl=False)


@command.command()
@with_settings
@click.option("--tag", help="the swarm's tag [NIGHTJAR_SWARM_TAG]")
@click.argument("file", required=False, type=EXISTING_FILE)
@click.option("--profile", help="dimensions that come with Nightjar: mnist or nanochat")
@click.option("--replace", is_flag=True, help="remove the tag's dimensions that are not among them")
@json_option
def define(
    settings: ClientSettings,
    tag: str | None,
    file: Path | None,
    profile: str | None,
    replace: bool,
    as_json: bool,
) -> None:
    """Load FILE, a dimensions.toml, or a profile into a tag, which is created where it is missing.

    A dimension of a known name takes the place of the tag's; the tag's others stay, unless --replace.
    """
    if (file is None) == (profile is None):
        raise click.UsageError("name a FILE or a --profile, one of the two")
    body: dict[str, Any] = {"tag": tag or settings.swarm_tag, "replace": replace}
    claims: list[dict[str, Any]] = []
    if file is not None:
        from functions.formats.dimensions import read_dimensions

        with _about(file):
            read = read_dimensions(_text(file))
        body["dimensions"] = [d.model_dump(exclude_none=True) for d in read.dimensions]
        claims = [h.model_dump(exclude_none=True) for h in read.hypotheses]
    else:
        body["profile"] = profile
    http = LabHttp(settings)
    made = http.ask("POST", "/api/dimension/define", body)
    gated = [
        http.ask("POST", "/api/hypothesis/propose", {"tag": body["tag"], "proposal": claim})
        for claim in claims
    ]
    if as_json:
        print_json({**made, "hypotheses": gated} if claims else made)
        return
    _show_definition(made)
    for claim, answer in zip(claims, gated, strict=True):
        said = answer["hypothesis_id"] or f"left out: {answer['detail']}"
        click.echo(f"hypothesis   {claim['statement']}: {said}")


@command.command()
@with_settings
@tag_argument
@json_option
def ls(settings: ClientSettings, tag: str | None, as_json: bool) -> None:
    """List the dimensions of TAG (default: the lab's only tag, else NIGHTJAR_SWARM_TAG)."""
    http = LabHttp(settings)
    name = the_tag(http, tag, among_several=settings.swarm_tag)
    found = http.ask("POST", "/api/dimension/list", {"tag": name})
    if as_json:
        print_json(found["dimensions"])
        return
    if found["dimensions"]:
        print_table(DIMENSIONS, map(_row, found["dimensions"]))
    click.echo(f"{name}: {counted(len(found['dimensions']), 'dimension')}")


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        *(row["name"], row["dtype"], _values(row)),
        "" if not row["frozen"] else _shown(row["frozen_value"]),
        "" if row["importance"] is None else f"{row['importance']:.2f}",
        *(_interaction(row), _trial(row)),
        *(row["frozen_reason"] or "", row["frozen_by"] or "", row["frozen_at"] or ""),
    )


def _trial(row: dict[str, Any]) -> str:
    """Share of the configs that vary it, and its value in the others; empty: every config may vary it."""
    if not row["is_canary"] or row["frozen"]:
        return ""
    share = "a share" if row["canary_prob"] is None else f"{100 * row['canary_prob']:g} %"
    default = row["default_value"]
    return f"{share} of configs" + ("" if default is None else f", else {_shown(default)}")


def _interaction(row: dict[str, Any]) -> str:
    """Its influence through interactions, and the strongest partner."""
    if row["interaction"] is None:
        return ""
    first = next((f" ({name} {share:.2f})" for name, share in row["interacts_with"].items()), "")
    return f"{row['interaction']:.2f}{first}"


def _show_definition(made: dict[str, Any]) -> None:
    tag = f"{made['tag']}, a new tag" if made["created"] else made["tag"]
    told = [f"{what}: {', '.join(made[what])}" for what in ("added", "changed", "removed") if made[what]]
    click.echo(
        f"{tag}: {counted(len(made['dimensions']), 'dimension')}; {'; '.join(told) or 'nothing changed'}"
    )
    click.echo(f"-> {PROGRAM} dims ls --tag {made['tag']}")


def _values(row: dict[str, Any]) -> str:
    if row["categories"] is None:
        return f"{row['min']} to {row['max']}"
    return ", ".join(map(_shown, row["categories"]))


def _shown(value: Any) -> str:
    """A value on one line: a text as it is, the rest as JSON."""
    return printable(value) if isinstance(value, str) else json.dumps(value)


def _text(file: Path) -> str:
    """The text of a file of the user's. Raises Invalid: it cannot be read, or is no text."""
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise Invalid(
            "it cannot be read as a text in UTF-8", hint="check the file's name and encoding"
        ) from problem


@contextmanager
def _about(file: Path) -> Iterator[None]:
    """Add the file's name to errors about it."""
    try:
        yield
    except Invalid as problem:
        raise Invalid(f"{file}: {problem.detail}", hint=problem.hint) from problem
