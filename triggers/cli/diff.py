"""`nightjar diff` shows the change of one experiment, or what lies between two."""

from __future__ import annotations

import sys

import click

from state.errors import NotFound
from triggers.cli.lab_http import LabHttp
from triggers.cli.options import with_lab
from triggers.cli.output import show_patch
from triggers.cli.runs import Run, is_of_swarm, path_of


@click.command()
@with_lab
@click.argument("experiment")
@click.argument("other", required=False)
def command(http: LabHttp, experiment: str, other: str | None) -> None:
    """Print the patch of EXPERIMENT against its tag's base commit, or what OTHER changes on top of EXPERIMENT.

    A swarm's run has no patch: its constants are printed, or those in which OTHER differs.
    """
    if other is None:
        one = http.ask("GET", path_of(experiment))
        config = _config(one["experiment"])
        text = config if is_of_swarm(one["experiment"]) else one["diff"]
        but = f", but is run with {', '.join(config.splitlines())}" if config else ""
        missing = f"no patch is known of {experiment}"
    else:
        found = http.ask("POST", "/api/report/diff", {"experiment_a": experiment, "experiment_b": other})
        text, missing, but = found["diff"], found["diff_cut"] or "one of them has no patch", ""
    if text is None:
        raise NotFound(missing, hint=f"./nightjar show {experiment} tells its commit")
    if not text:
        beside = f"on top of {experiment}" if other else "of the code that it began with"
        click.echo(f"{other or experiment} changes nothing {beside}{but}", err=True)
    if not sys.stdout.isatty():
        sys.stdout.buffer.write(text.encode())  # as it is: it may be applied
        return
    show_patch(text)


def _config(run: Run) -> str:
    """The constants that a swarm's run sets, as lines of train.py."""
    return "".join(f"{name} = {value!r}\n" for name, value in (run["config_delta"] or {}).items())
