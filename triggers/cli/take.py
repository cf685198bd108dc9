"""`nightjar take` makes a branch of an experiment's code in your own repository; the working tree is not touched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from state.errors import Conflict
from triggers.cli.lab_http import LabHttp
from triggers.cli.options import with_lab
from triggers.cli.repository import Git, base_of, scripts_of
from triggers.cli.runs import path_of


@click.command()
@with_lab
@click.argument("experiment")
@click.option("--distilled", is_flag=True, help="EXPERIMENT is a tag: take its smallest patch, and its parts")
@click.option("--branch", default=None, help="its name  [default: nightjar/EXPERIMENT]")
@click.option(
    "--repo",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=".",
    help="the repository  [default: the one around this folder]",
)
def command(http: LabHttp, experiment: str, distilled: bool, branch: str | None, repo: Path) -> None:
    """Make a branch of the code of EXPERIMENT, its constants set.

    It begins with the agent's own commit where the repository has it, else it is one commit on the tag's base.
    Nothing is checked out.
    """
    small = http.ask("POST", "/api/trust/distilled", {"tag": experiment}) if distilled else None
    if small is not None and small["commit_of"] is None:
        state = small["distillation"]["state"] if small["distillation"] else "not begun"
        raise Conflict(f"the distillation of {experiment} is {state}", hint=f"nightjar distil {experiment}")
    found = http.ask("GET", path_of(small["commit_of"] if small else experiment))
    run = found["experiment"]
    git = Git(repo)
    name = branch or f"nightjar/{f'{experiment}-distilled' if small else run['experiment_id']}"
    if git.commit(f"refs/heads/{name}"):
        raise Conflict(f"there is a branch {name!r} already", hint="name another with --branch")
    base = base_of(http, run["tag"])
    commit = git.trained(run, base, found["diff"], scripts_of(http, run))
    git("branch", name, commit)
    changed = git("diff", "--shortstat", base, commit).strip() if base and git.commit(base) else ""
    click.echo(f"{name}: {run['experiment_id']}, {changed or 'no change'}")
    if small is not None:
        _make_parts(git, base, name, small)
    click.echo(f"-> git switch {name}")


def _make_parts(git: Git, base: str | None, name: str, small: dict[str, Any]) -> None:
    """One branch on the base commit for each independent change."""
    assert base is not None  # nothing is distilled without it
    known = {change["experiment_id"]: change for change in small["distillation"]["changes"]}
    parts = zip(small["distillation"]["parts"], small["patches"], strict=True)
    for nth, (keeps, patch) in enumerate(parts, 1):
        part, said = f"{name}-{nth}", "; ".join(known[keep]["description"] for keep in keeps)
        message = f"{said}\n\nExperiments: {', '.join(keeps)}\n"
        git("branch", "--force", part, git.committed(git.patched(base, patch.encode()), base, message))
        click.echo(f"{part}: {', '.join(keeps)}, {said}")
