"""`nightjar unpause` lets the runs of a paused tag go on."""

from __future__ import annotations

import click

from triggers.cli.lab_http import LabHttp
from triggers.cli.options import json_option, tag_argument, with_lab
from triggers.cli.output import counted, print_json
from triggers.cli.runs import the_tag


@click.command()
@with_lab
@tag_argument
@json_option
def command(http: LabHttp, tag: str | None, as_json: bool) -> None:
    """Start runs of TAG again (default: the lab's only tag)."""
    name = the_tag(http, tag)
    found = http.ask("POST", "/api/tag/unpause", {"tag": name})
    if as_json:
        print_json(found)
    else:
        what = "goes on" if found["changed"] else "was not paused"
        click.echo(f"{name}: {what}; waiting: {counted(found['waiting'], 'experiment')}")
