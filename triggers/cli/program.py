"""`nightjar program` prints the program that the lab has written for a tag, and has it written again."""

from __future__ import annotations

from typing import Any

import click

from state.client_settings import ClientSettings
from triggers.cli.lab_http import LabHttp
from triggers.cli.options import tag_argument, with_settings
from triggers.cli.output import note, printable_lines
from triggers.cli.runs import the_tag
from triggers.cli.tables import Column, print_table

VERSIONS = (
    *(Column("version", right=True), Column("written"), Column("by"), Column("results", right=True)),
    *(Column("strategy"), Column("why", text=20)),
)


@click.command()
@with_settings
@tag_argument
@click.option("--versions", is_flag=True, help="list the versions: who wrote each, when and why")
@click.option("--diff", type=click.IntRange(1), default=None, metavar="N", help="what version N changed")
@click.option("--write", is_flag=True, help="have a version written now")
def command(settings: ClientSettings, tag: str | None, versions: bool, diff: int | None, write: bool) -> None:
    """Print what the lab has written of the results of TAG: the block in program.md.

    TAG is by default the lab's only tag, else NIGHTJAR_SWARM_TAG.
    """
    http = LabHttp(settings)
    name = the_tag(http, tag, among_several=settings.swarm_tag)
    if write:
        begun = http.ask("POST", "/api/program/write", {"tag": name})
        note(_of_writing(begun))
    elif versions:
        if found := _versions(http, name):
            print_table(VERSIONS, map(_row, found))
    elif diff is not None:
        shown = http.ask("POST", "/api/program/diff", {"tag": name, "number": diff})["diff"]
        click.echo(printable_lines(shown), nl=False)
    else:
        for version in _versions(http, name, limit=1):
            click.echo(printable_lines(version["text"]))


def _versions(http: LabHttp, tag: str, limit: int | None = None) -> list[dict[str, Any]]:
    """The newest versions; prints a note if there are none."""
    body = {"tag": tag} | ({} if limit is None else {"limit": limit})
    found: list[dict[str, Any]] = http.ask("POST", "/api/program/list", body)["versions"]
    if not found:
        note(f"nothing was written of {tag} yet: it is after 50 results, or with --write")
    return found


def _row(version: dict[str, Any]) -> tuple[str, ...]:
    return tuple(
        str(version[name]) for name in ("number", "written_at", "author", "results", "strategy", "reason")
    )


def _of_writing(begun: dict[str, Any]) -> str:
    number, tag = begun["number"], begun["tag"]
    if begun["became"] == "written":
        return f"version {number} of the program of {tag} is written"
    return f"a language model writes version {number} of the program of {tag}: --versions shows it once it is there"
