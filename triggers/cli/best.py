"""`nightjar best` shows the best experiment of a tag, and writes a swarm's best config into a train.py."""

from __future__ import annotations

from pathlib import Path

import click

from state.errors import Conflict, NotFound
from state.program import PROGRAM
from triggers.cli.lab_http import LabHttp
from triggers.cli.options import data_option, json_option, lab_option, settings_from, tag_argument
from triggers.cli.output import print_json, printable
from triggers.cli.runs import Run, is_of_swarm, measured, outcome, the_tag, value
from triggers.cli.setting import Change, set_constants


@click.command()
@data_option
@lab_option
@tag_argument
@click.option(
    "--write",
    "script",
    metavar="TRAIN_PY",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=None,
    help="set the constants of this file to the best config of a swarm's tag",
)
@json_option
def command(data: str | None, lab: str | None, tag: str | None, script: Path | None, as_json: bool) -> None:
    """Show the best experiment of TAG (default: the lab's only tag), and what may be claimed of it.

    --write changes nothing of the file but the values of these constants; where it lacks one, nothing at all.
    """
    http = LabHttp(settings_from(data=data, lab=lab))
    name = the_tag(http, tag)
    found = http.ask("POST", "/api/experiment/best", {"tag": name})
    best, run = found["best"], found["experiment"]
    if best is None:
        raise NotFound(f"nothing of {name!r} was kept yet", hint=f"./nightjar ls {name} shows what was tried")
    changes = None if script is None else set_constants(script, _config(run))
    if as_json:
        print_json(found if changes is None else {**found, "written": changes})
        return
    beside = f" (val_bpb {printed})" if (printed := measured(run)) else ""
    what = f"{value(run)}{beside}  {outcome(run)}  {printable(run['description'])}"
    click.echo(f"{best['experiment_id']}  {what}")
    if best["claimed_bpb"] is not None:
        runs = "run" if best["claimed_n"] == 1 else "runs"
        click.echo(
            f"claimed: {best['claimed_bpb']:.6f}, the mean of {best['claimed_n']} more {runs} of its code"
        )
    if script is not None and changes is not None:
        _tell(script, changes, run)
    elif is_of_swarm(run):
        click.echo(f"-> {PROGRAM} best {name} --write train.py sets the constants of your train.py to it")
    else:
        click.echo(f"-> {PROGRAM} diff {best['experiment_id']}")


def _config(run: Run) -> dict[str, object]:
    """The config of a best that can be written into a train.py.

    Raises:
        Conflict: its change is none of constants alone.
    """
    if not is_of_swarm(run):
        raise Conflict(
            f"{run['experiment_id']}, the best of {run['tag']!r}, is a change of code: no swarm's config",
            hint=f"{PROGRAM} take {run['experiment_id']} makes a branch of its code",
        )
    if not run["config_delta"]:
        raise Conflict(
            f"{run['experiment_id']}, the best of {run['tag']!r}, ran the unchanged train.py of"
            f" {run['worker_id']!r}: there is no config to write",
            hint=f"{PROGRAM} ls {run['tag']} shows what else was tried",
        )
    return dict(run["config_delta"])


def _tell(script: Path, changes: dict[str, Change], run: Run) -> None:
    for name, (before, after) in changes.items():
        click.echo(f"{printable(name)}: {printable(repr(before))} -> {printable(repr(after))}")
    count = len(run["config_delta"])
    same = count - len(changes)
    rest = f", {same} had its value already" if same else ""
    click.echo(f"{script} has the {count} constants of {run['experiment_id']}{rest}")
