"""`nightjar take` makes a branch of an experiment's code in your own repository; the working tree is not touched."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from functions.formats.constants import patch_constants
from functions.formats.patches import applicable
from functions.formats.train_command import SCRIPT, no_script
from functions.git import command as command_of_git
from functions.git import environment, knows_user
from state.errors import Conflict, NotFound, Unavailable
from triggers.cli.lab_http import LabHttp
from triggers.cli.options import data_option, lab_option, settings_from
from triggers.cli.runs import Run, path_of


@click.command()
@data_option
@lab_option
@click.argument("experiment")
@click.option("--branch", default=None, help="its name  [default: nightjar/EXPERIMENT]")
@click.option(
    "--repo",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=".",
    help="the repository  [default: the one around this folder]",
)
def command(data: str | None, lab: str | None, experiment: str, branch: str | None, repo: Path) -> None:
    """Make a branch of the code of EXPERIMENT, its constants set.

    It begins with the agent's own commit where the repository has it, else it is one commit on the tag's base.
    Nothing is checked out.
    """
    http = LabHttp(settings_from(data=data, lab=lab))
    found = http.ask("GET", path_of(experiment))
    run, patch = found["experiment"], found["diff"]
    git = Git(repo)
    name = branch or f"nightjar/{run['experiment_id']}"
    if git.knows(f"refs/heads/{name}"):
        raise Conflict(f"there is a branch {name!r} already", hint="name another with --branch")
    base = _base_of(http, run)
    with tempfile.TemporaryDirectory(prefix="nightjar-take-") as folder:
        git.index = Path(folder) / "index"
        commit = _committed(git, run, base, None if patch is None else patch.encode(), _scripts_of(http, run))
    git("branch", name, commit)
    changed = git("diff", "--shortstat", base, commit).strip() if base and git.knows(base) else ""
    click.echo(f"{name}: {run['experiment_id']}, {changed or 'no change'}")
    click.echo(f"-> git switch {name}")


def _base_of(http: LabHttp, run: Run) -> str | None:
    """The base commit of its tag."""
    base: str | None = http.ask("POST", "/api/report/night", {"tag": run["tag"], "changes": False})[
        "base_commit"
    ]
    return base


def _scripts_of(http: LabHttp, run: Run) -> Sequence[str]:
    """The scripts of its worker. Without a record of that worker it is train.py."""
    workers = http.ask("GET", "/api/pool/list")["workers"]
    return next((each["scripts"] for each in workers if each["gpu_id"] == run["gpu_id"]), [SCRIPT])


def _committed(git: Git, run: Run, base: str | None, patch: bytes | None, scripts: Sequence[str]) -> str:
    """A commit with the code that was trained.

    Raises:
        NotFound: the repository has neither the base nor the commit. Conflict: the patch does not apply.
    """
    theirs: str | None = run["commit_sha"] if git.knows(run["commit_sha"]) else None
    tree = git("rev-parse", f"{theirs}^{{tree}}").strip() if theirs else None
    if patch is not None and base is not None and git.knows(base):
        rebuilt = git.patched(base, patch)
        theirs, tree = (theirs if rebuilt == tree else None), rebuilt
    if tree is None:
        raise NotFound(
            f"this repository has neither {run['commit_sha']} nor the tag's base commit {base}",
            hint="go to the repository of the research, or name it with --repo; git fetch may bring them",
        )
    whole = git.with_constants(tree, run["config_delta"] or {}, scripts)
    parent = theirs or base
    if theirs is not None and whole == tree:
        return theirs
    assert parent is not None
    return git.committed(whole, parent, _message(run))


def _message(run: Run) -> str:
    value = "" if run["val_bpb"] is None else f"Value: {run['val_bpb']!r}\n"
    return f"{run['description']}\n\n{run['hypothesis']}\n\n{value}Experiment: {run['experiment_id']}\n"


class Git:
    """Git in one repository."""

    def __init__(self, repo: Path) -> None:
        self._repo = repo
        self.index: Path | None = None
        """The index that is written instead of the repository's."""
        if self._run("rev-parse", "--git-dir").returncode:
            raise NotFound(
                f"{repo.resolve()} is in no git repository",
                hint="go to a clone of the research project, or name one with --repo",
            )

    def __call__(self, *arguments: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> str:
        """What it prints.

        Raises:
            Unavailable: it ends with an error.
        """
        done = self._run(*arguments, stdin=stdin, env=env)
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip()
            raise Unavailable(
                f"git {arguments[0]} failed in {self._repo}: {said[-500:]}", hint="mend that first"
            )
        return done.stdout.decode()

    def knows(self, name: str) -> bool:
        """Whether this is a commit here."""
        return self._run("rev-parse", "--quiet", "--verify", f"{name}^{{commit}}").returncode == 0

    def patched(self, base: str, patch: bytes) -> str:
        """The tree that a patch makes of a commit's.

        Raises:
            Conflict: it does not apply.
        """
        self("read-tree", base)
        if patch:
            done = self._run(
                "apply", "--cached", "--binary", "--whitespace=nowarn", "-", stdin=applicable(patch)
            )
            if done.returncode:
                said = done.stderr.decode("utf-8", "replace").strip()
                raise Conflict(
                    f"its patch does not apply to {base}: {said[-500:]}", hint="is this its repository?"
                )
        return self("write-tree").strip()

    def with_constants(self, tree: str, values: Mapping[str, Any], scripts: Sequence[str]) -> str:
        """The tree with these constants set, in the first of the scripts that it has.

        Raises:
            Invalid: it has no such script, or the script no such constant.
        """
        if not values:
            return tree
        self("read-tree", tree)
        found = ((path, self("ls-tree", tree, "--", path).split()[:1]) for path in scripts)
        path, mode = next(((path, mode[0]) for path, mode in found if mode), ("", ""))
        if not path:
            raise no_script(scripts)
        script = patch_constants(self("cat-file", "blob", f"{tree}:{path}"), dict(values))
        blob = self("hash-object", "-w", "--stdin", stdin=script.encode()).strip()
        self("update-index", "--cacheinfo", f"{mode},{blob},{path}")
        return self("write-tree").strip()

    def committed(self, tree: str, parent: str, message: str) -> str:
        """A commit of a tree, by the user whom their own configuration names; by Nightjar where it names none."""
        users = dict(os.environ)
        who = (
            ()
            if knows_user(self._repo)
            else ("-c", "user.name=Nightjar", "-c", "user.email=nightjar@localhost")
        )
        return self(*who, "commit-tree", tree, "-p", parent, "-m", message, env=users).strip()

    def _run(
        self, *arguments: str, stdin: bytes = b"", env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        index = {"GIT_INDEX_FILE": str(self.index)} if self.index else {}
        try:
            return subprocess.run(
                command_of_git(self._repo, *arguments),
                input=stdin,
                capture_output=True,
                env=environment(**index) if env is None else env,
                check=False,
            )
        except FileNotFoundError:
            raise Unavailable("there is no git on this machine", hint="install git") from None
