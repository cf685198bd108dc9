"""`nightjar transfer` says whether a keep's gain holds at a longer budget; it prints the budget of its runs first."""

from __future__ import annotations

from typing import Any

import click

from state.program import PROGRAM
from triggers.cli.certify import lines
from triggers.cli.following import followed
from triggers.cli.lab_http import LabHttp
from triggers.cli.options import json_option, with_lab
from triggers.cli.output import DISCARD, OK, note, print_json, show
from triggers.cli.runs import path_of
from triggers.cli.show import transfer_line


@click.command()
@with_lab
@click.argument("experiment")
@click.option("--budget", default="4x", help="of a run: seconds, or a multiple of its own  [default: 4x]")
@click.option("--against", metavar="REF", default=None, help="the reference  [default: the tag's baseline]")
@click.option("--yes", is_flag=True, help="begin it; otherwise only its budget is printed")
@json_option
def command(
    http: LabHttp, experiment: str, budget: str, against: str | None, yes: bool, as_json: bool
) -> int:
    """Run the keep EXPERIMENT and its reference in pairs at a longer budget: is its gain more than a head start?

    After Ctrl-C the lab goes on, and the same command follows it. Exit codes: 0 transfers, 3 bound to its budget,
    inconclusive.
    """
    asked = {"experiment_id": experiment, "budget": budget, "against": against, "begin": yes}
    found = http.ask("POST", "/api/trust/transfer", asked)
    if as_json:
        print_json(found)
        return OK
    one = found["transfer"]
    show(
        f"{one['experiment_id']} against {one['against']} at {one['budget_s']:g} s, not {one['own_budget_s']:g} s:"
        f" at most {one['most_runs']} runs, {found['hours']:.1f} hours on one GPU, in the tag {one['into']}"
    )
    if one["state"] == "planned":
        options = f"--budget {budget}" + (f" --against {against}" if against else "")
        click.echo(f"-> {PROGRAM} transfer {experiment} {options} --yes begins it")
        return OK
    try:
        one = _followed(http, one)
    except KeyboardInterrupt:
        note("the lab goes on; the same command follows it")
        return 130
    show(transfer_line(one))
    return OK if one["state"] == "transfers" else DISCARD


def _followed(http: LabHttp, one: dict[str, Any]) -> dict[str, Any]:
    """The transfer once it is over; prints each pair as it ends."""
    told = 1  # all lines but the conditions

    def ask() -> dict[str, Any]:
        its = http.ask("GET", path_of(one["experiment_id"]))["transfers"]
        now = next(each for each in its if each["into"] == one["into"])
        by = http.ask("GET", path_of(now["candidate"]))["certificate"] if now["candidate"] else None
        return {**now, "lines": lines(by) if by else []}

    def tell(now: dict[str, Any]) -> None:
        nonlocal told
        for line in now.get("lines", [])[told:]:
            click.echo(line)
            told += 1

    return followed(one, ask, tell)
