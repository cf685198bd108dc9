"""`nightjar best` shows the best experiment of a tag, and writes a swarm's best config into a train.py."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import click

from functions.formats.constants import patch_constants, settable_constants
from functions.formats.parsing import decoded
from state.errors import Conflict, Invalid, NotFound, Unavailable
from state.program import PROGRAM
from triggers.cli.lab_http import LabHttp
from triggers.cli.options import EXISTING_FILE, json_option, tag_argument, with_lab
from triggers.cli.output import print_json, printable
from triggers.cli.runs import Run, digits_of, is_of_swarm, measured, outcome, the_tag, value


@click.command()
@with_lab
@tag_argument
@click.option(
    "--write",
    "script",
    metavar="TRAIN_PY",
    type=EXISTING_FILE,
    help="set the constants of this file to the best config of a swarm's tag",
)
@json_option
def command(http: LabHttp, tag: str | None, script: Path | None, as_json: bool) -> None:
    """Show the best experiment of TAG (default: the lab's only tag), and what may be claimed of it.

    --write changes nothing of the file but the values of these constants; where it lacks one, nothing at all.
    """
    name = the_tag(http, tag)
    found = http.ask("POST", "/api/experiment/best", {"tag": name})
    best, run = found["best"], found["experiment"]
    if best is None:
        raise NotFound(f"nothing of {name!r} was kept yet", hint=f"./nightjar ls {name} shows what was tried")
    changes = None if script is None else set_constants(script, _config(run))
    if as_json:
        print_json(found if changes is None else {**found, "written": changes})
        return
    digits = digits_of(http, name)
    beside = f" (val_bpb {printed})" if (printed := measured(run, digits)) else ""
    what = f"{value(run, digits)}{beside}  {outcome(run)}  {printable(run['description'])}"
    click.echo(f"{best['experiment_id']}  {what}")
    if best["claimed_bpb"] is not None:
        runs = "run" if best["claimed_n"] == 1 else "runs"
        click.echo(
            f"claimed: {best['claimed_bpb']:.{digits}f}, the mean of {best['claimed_n']} more {runs} of its code"
        )
    if script is not None and changes is not None:
        _tell(script, changes, run)
    elif is_of_swarm(run):
        click.echo(f"-> {PROGRAM} best {name} --write train.py sets the constants of your train.py to it")
    else:
        click.echo(f"-> {PROGRAM} diff {best['experiment_id']}")


def _config(run: Run) -> dict[str, object]:
    """The best experiment's config, for a train.py. Raises Conflict: its change is none of constants alone."""
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


Change = tuple[object, object]
"""A constant's value before and after."""


def set_constants(script: Path, values: Mapping[str, object]) -> dict[str, Change]:
    """Set constants of a script to these values; answers those that have changed.

    A constant that has its value already keeps its text. The file keeps its mode, and a link stays a link. It is
    replaced in one step: who reads it meanwhile sees the old text or the new one.

    Raises:
        Invalid: the file is no Python, or lacks one of the constants: it is left as it is.
        Unavailable: it cannot be read or written.
    """
    file = script.resolve()
    try:
        source, encoding = decoded(file.read_bytes())
        constants = settable_constants(source)
        patched = patch_constants(source, values)
        if patched != source:
            _replace(file, patched.encode(encoding))
    except Invalid as problem:
        raise Invalid(
            f"{script} is left as it is: {problem.detail}",
            hint="add it at the top level, as `NAME = VALUE`: the swarm's train.py has it there",
        ) from problem
    except OSError as problem:
        raise Unavailable(
            f"{script} is left as it is: {problem.strerror or problem}", hint="name a file that you may write"
        ) from problem
    return {
        name: (constants[name], value)
        for name, value in values.items()
        if ascii(constants[name]) != ascii(value)
    }


def _replace(file: Path, content: bytes) -> None:
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with draft.open("xb") as opened:
            shutil.copymode(file, draft)
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
