"""`nightjar unpause` lets the runs of a paused tag go on."""

from __future__ import annotations

import click

from triggers.cli.lab_http import LabHttp
from triggers.cli.options import data_option, json_option, lab_option, settings_from, tag_argument
from triggers.cli.output import counted, print_json
from triggers.cli.runs import the_tag


@click.command()
@data_option
@lab_option
@tag_argument
@json_option
def command(data: str | None, lab: str | None, tag: str | None, as_json: bool) -> None:
    """Start runs of TAG again (default: the lab's only tag)."""
    http = LabHttp(settings_from(data=data, lab=lab))
    name = the_tag(http, tag)
    found = http.ask("POST", "/api/tag/unpause", {"tag": name})
    if as_json:
        print_json(found)
    else:
        what = "goes on" if found["changed"] else "was not paused"
        click.echo(f"{name}: {what}; waiting: {counted(found['waiting'], 'experiment')}")
