"""`nightjar best` shows the best experiment of a tag."""

from __future__ import annotations

import click

from state.errors import NotFound
from state.program import PROGRAM
from triggers.cli.lab_http import LabHttp
from triggers.cli.options import data_option, lab_option, settings_from
from triggers.cli.output import print_json, printable
from triggers.cli.runs import outcome, the_tag


@click.command()
@data_option
@lab_option
@click.argument("tag", required=False)
@click.option("--json", "as_json", is_flag=True)
def command(data: str | None, lab: str | None, tag: str | None, as_json: bool) -> None:
    """Show the best experiment of TAG (default: the lab's only tag), and what may be claimed of it."""
    http = LabHttp(settings_from(data=data, lab=lab))
    name = the_tag(http, tag)
    found = http.ask("POST", "/api/experiment/best", {"tag": name})
    if as_json:
        print_json(found)
        return
    best, run = found["best"], found["experiment"]
    if best is None:
        raise NotFound(f"nothing of {name!r} was kept yet", hint=f"./nightjar ls {name} shows what was tried")
    click.echo(
        f"{best['experiment_id']}  {best['val_bpb']:.6f}  {outcome(run)}  {printable(run['description'])}"
    )
    if best["claimed_bpb"] is not None:
        runs = "run" if best["claimed_n"] == 1 else "runs"
        click.echo(
            f"claimed: {best['claimed_bpb']:.6f}, the mean of {best['claimed_n']} more {runs} of its code"
        )
    click.echo(f"-> {PROGRAM} diff {best['experiment_id']}")
