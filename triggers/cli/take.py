"""`nightjar take` makes a branch of an experiment's code in your own repository; the working tree is not touched."""

from __future__ import annotations

from pathlib import Path

import click

from state.errors import Conflict
from triggers.cli.lab_http import LabHttp
from triggers.cli.options import with_lab
from triggers.cli.repository import Git, base_of, scripts_of
from triggers.cli.runs import path_of


@click.command()
@with_lab
@click.argument("experiment")
@click.option("--branch", default=None, help="its name  [default: nightjar/EXPERIMENT]")
@click.option(
    "--repo",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=".",
    help="the repository  [default: the one around this folder]",
)
def command(http: LabHttp, experiment: str, branch: str | None, repo: Path) -> None:
    """Make a branch of the code of EXPERIMENT, its constants set.

    It begins with the agent's own commit where the repository has it, else it is one commit on the tag's base.
    Nothing is checked out.
    """
    found = http.ask("GET", path_of(experiment))
    run = found["experiment"]
    git = Git(repo)
    name = branch or f"nightjar/{run['experiment_id']}"
    if git.commit(f"refs/heads/{name}"):
        raise Conflict(f"there is a branch {name!r} already", hint="name another with --branch")
    base = base_of(http, run["tag"])
    commit = git.trained(run, base, found["diff"], scripts_of(http, run))
    git("branch", name, commit)
    changed = git("diff", "--shortstat", base, commit).strip() if base and git.commit(base) else ""
    click.echo(f"{name}: {run['experiment_id']}, {changed or 'no change'}")
    click.echo(f"-> git switch {name}")
