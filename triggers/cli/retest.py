"""`nightjar retest` runs an experiment's code once more."""

from __future__ import annotations

import click

from state.program import PROGRAM
from triggers.cli.lab_http import LabHttp
from triggers.cli.options import json_option, with_lab
from triggers.cli.output import print_json


@click.command()
@with_lab
@click.argument("experiment")
@json_option
def command(http: LabHttp, experiment: str, as_json: bool) -> None:
    """Run the code of EXPERIMENT once more on another seed: evidence for it, not a new experiment."""
    found = http.ask("POST", "/api/experiment/retest", {"experiment_id": experiment})
    if as_json:
        print_json(found)
    else:
        click.echo(
            f"{found['retest_id']}: {found['status']}, seed {found['seed']}; {PROGRAM} wait {found['retest_id']}"
        )
