"""`nightjar report` prints what a night brought, as Markdown."""

from __future__ import annotations

from pathlib import Path

import click

from state.program import PROGRAM
from triggers.cli.lab_http import LabHttp
from triggers.cli.options import tag_argument, with_lab
from triggers.cli.output import note, print_json, printable_lines
from triggers.cli.runs import the_tag


@click.command()
@with_lab
@tag_argument
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="write it to this file, and the plot beside it",
)
@click.option(
    "--shrinkage", is_flag=True, help="say, to operators, what a hidden split bears out of the gains"
)
@click.option("--json", "as_json", is_flag=True, help="the figures, and the Markdown among them")
def command(http: LabHttp, tag: str | None, output: Path | None, shrinkage: bool, as_json: bool) -> None:
    """Print what TAG (default: the lab's only tag) brought: fit for a pull request."""
    name = the_tag(http, tag)
    plot = output.with_name(f"{output.stem}.png") if output else None
    asked = {"tag": name, "picture": plot.name if plot else None}
    night = http.ask("POST", "/api/report/night", asked)
    if output is not None and plot is not None:
        picture = http.ask("GET", f"/api/report/progress.png?tag={name}")
        output.write_text(night["markdown"] + "\n")
        plot.write_bytes(picture)
        note(f"{output} and {plot.name} are written")
    elif as_json:
        print_json(night)
    else:
        click.echo(printable_lines(night["markdown"]))
    if shrinkage:
        _show_shrinkage(http, name)
    if night["best_experiment_id"] is not None:
        hint = (
            f"best {name} --write train.py sets the constants of your train.py to the best"
            if night["by_delta"]
            else f"take {night['best_experiment_id']} makes a branch of the best"
        )
        note(f"-> {PROGRAM} {hint}")


def _show_shrinkage(http: LabHttp, tag: str) -> None:
    """Say how much of the gains the hidden split bears out: on standard error, never in the report."""
    found = http.ask("POST", "/api/trust/shrinkage", {"tag": tag})
    if found["shrinkage"] is None:
        note("hidden split: no keep of this tag was compared on it")
        return
    gains = f"{found['visible_gain']:.6g} visible, {found['hidden_gain']:.6g} hidden"
    note(
        f"hidden split: {found['shrinkage']:.0%} of the visible gain is missing there ({gains}; mean of"
        f" {found['keeps']} keeps)"
    )
