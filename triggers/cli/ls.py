"""`nightjar ls` lists a tag's experiments, the newest first."""

from __future__ import annotations

from typing import Any

import click

from state.program import PROGRAM
from triggers.cli.lab_http import LabHttp
from triggers.cli.options import tag_argument, with_lab
from triggers.cli.output import BY_STATUS, counted, print_json, show
from triggers.cli.runs import digits_of, newest_remedies, print_runs, the_tag

MOST = 1000


@click.command()
@with_lab
@tag_argument
@click.option("-n", "limit", type=click.IntRange(1, MOST), default=20, show_default=True, help="how many")
@click.option("--status", type=click.Choice([*BY_STATUS]), default=None, help="only of this status")
@click.option("--category", default=None, help="only of this category")
@click.option("--json", "as_json", is_flag=True, help="the records, oldest first")
def command(
    http: LabHttp, tag: str | None, limit: int, status: str | None, category: str | None, as_json: bool
) -> None:
    """List the experiments of TAG (default: the lab's only tag), the newest first.

    A gain is over the best before it, on the same seeds; above zero is better.
    """
    name = the_tag(http, tag)
    asked = {"tag": name, "limit": limit, "status": status, "category": category}
    found = http.ask("POST", "/api/experiment/history", asked)
    if as_json:
        print_json(found["experiments"])
    else:
        _show(name, found, digits_of(http, name))


def _show(tag: str, found: dict[str, Any], digits: int) -> None:
    runs = found["experiments"]
    if runs:
        print_runs(runs[::-1], found["gains"], digits)
    for remedy, run in newest_remedies(runs).items():
        show(f"{run['experiment_id']}: {remedy}")
    of = f"{len(runs)} of " if len(runs) < found["total"] else ""
    more = f"; {PROGRAM} show ID tells more of one" if runs else ""
    click.echo(f"{tag}: {of}{counted(found['total'], 'experiment')}{more}")
