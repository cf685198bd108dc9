"""`nightjar pause` holds the runs of a tag back."""

from __future__ import annotations

import click

from state.program import PROGRAM
from triggers.cli.lab_http import LabHttp
from triggers.cli.options import json_option, tag_argument, with_lab
from triggers.cli.output import counted, print_json, show
from triggers.cli.runs import the_tag


@click.command()
@with_lab
@tag_argument
@click.option("--reason", default=None, help="why, for the tag's agents")
@click.option("--stop-running", is_flag=True, help="stop its runs in progress too; else they go on")
@json_option
def command(http: LabHttp, tag: str | None, reason: str | None, stop_running: bool, as_json: bool) -> None:
    """Start no more runs of TAG (default: the lab's only tag): what waits keeps its place."""
    name = the_tag(http, tag)
    body = {"tag": name, "stop_running": stop_running, "reason": reason}
    found = http.ask("POST", "/api/tag/pause", body)
    if as_json:
        print_json(found)
        return
    since = "" if found["changed"] else f" since {found['paused_at']}"
    why = f" ({found['reason']})" if found["reason"] else ""
    show(f"{name}: paused{since}{why}; waiting: {counted(found['waiting'], 'experiment')}")
    if found["stopping"]:
        show(f"its workers end {', '.join(found['stopping'])}")
    click.echo(f"-> {PROGRAM} unpause {name}")
