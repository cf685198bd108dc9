"""`nightjar stop` ends an experiment that is not finished."""

from __future__ import annotations

import click

from state.program import PROGRAM
from triggers.cli.lab_http import LabHttp
from triggers.cli.options import json_option, with_lab
from triggers.cli.output import print_json


@click.command()
@with_lab
@click.argument("experiment")
@click.option("--reason", default=None, help="why, for whoever reads it later")
@json_option
def command(http: LabHttp, experiment: str, reason: str | None, as_json: bool) -> None:
    """Stop EXPERIMENT: at once where no worker has it, else its worker ends the run."""
    body = {"experiment_id": experiment} | ({"reason": reason} if reason is not None else {})
    found = http.ask("POST", "/api/experiment/stop", body)
    if as_json:
        print_json(found)
    elif found["stopping"]:
        click.echo(f"{experiment}: its worker ends the run; {PROGRAM} wait {experiment}")
    else:
        click.echo(f"{experiment}: stopped")
