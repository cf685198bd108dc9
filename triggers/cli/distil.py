"""`nightjar distil` finds the smallest patch with the score of a tag's best; it prints its budget first."""

from __future__ import annotations

from typing import Any

import click

from state.program import PROGRAM
from triggers.cli.following import followed
from triggers.cli.lab_http import LabHttp
from triggers.cli.options import json_option, tag_argument, with_lab
from triggers.cli.output import DISCARD, OK, counted, note, print_json, show
from triggers.cli.runs import the_tag

UNDECIDED = ("untried", "trying")


@click.command()
@with_lab
@tag_argument
@click.option("--yes", is_flag=True, help="begin it; otherwise only its budget is printed")
@json_option
def command(http: LabHttp, tag: str | None, yes: bool, as_json: bool) -> int:
    """Leave out one keep of TAG at a time, and drop what the score does not need.

    After Ctrl-C the lab goes on, and the same command follows it. Exit codes: 0 done, 3 stopped.
    """
    name = the_tag(http, tag)
    found = http.ask("POST", "/api/trust/distil", {"tag": name, "begin": yes})
    if as_json:
        print_json(found)
        return OK
    show(budget(found))
    one = found["distillation"]
    if one["state"] == "planned":
        click.echo(f"-> {PROGRAM} distil {name} --yes begins it")
        return OK
    try:
        one = _followed(http, one)
    except KeyboardInterrupt:
        note(f"the lab goes on; {PROGRAM} distil {name} follows it")
        return 130
    show(result(one))
    if one["state"] == "done":
        click.echo(f"-> {PROGRAM} take --distilled {name} makes branches of it")
    return OK if one["state"] == "done" else DISCARD


def _followed(http: LabHttp, one: dict[str, Any]) -> dict[str, Any]:
    """The distillation once it is over; prints each change when it is decided."""
    told, asked = dict[str, str](), {"tag": one["tag"]}

    def tell(one: dict[str, Any]) -> None:
        for change in one["changes"]:
            name, state = change["experiment_id"], change["state"]
            if state not in UNDECIDED and told.get(name) != state:
                told[name] = state
                show(line(change))

    return followed(one, lambda: http.ask("POST", "/api/trust/distil", asked)["distillation"], tell)


def budget(found: dict[str, Any]) -> str:
    """The budget in a line."""
    one = found["distillation"]
    return (
        f"{one['tag']}: {counted(len(one['changes']), 'change')} up to {one['best']}, at most {one['most_runs']} runs"
        f" of {one['run_s']:.0f} s: {found['hours']:.1f} hours on one GPU, in the tag {one['into']}"
    )


def line(change: dict[str, Any]) -> str:
    """A decided change in a line."""
    loss = "" if change["loss"] is None else f", {change['loss']:+.3g} without it"
    runs = f" ({counted(change['runs'], 'run')})" if change["runs"] else ""
    why = f": {change['reason']}" if change["reason"] else ""
    return (
        f"{change['state']:<9} {change['experiment_id']} {change['description']},"
        f" {counted(change['lines'], 'line')}{loss}{runs}{why}"
    )


def result(one: dict[str, Any]) -> str:
    """The result in a line."""
    if one["state"] != "done":
        return f"stopped: {one['reason']}"
    stay = [change for change in one["changes"] if change["state"] != "dropped"]
    lines, of = (sum(change["lines"] for change in changes) for changes in (stay, one["changes"]))
    worse = f"{one['loss']:+.3g} beside the whole chain, above zero is worse"
    return (
        f"{one['smallest']}: {len(stay)} of {counted(len(one['changes']), 'change')}, {lines} of {of} lines; {worse};"
        f" {counted(len(one['parts']), 'independent change')}"
    )
