"""The project that a worker trains, a git repository with a train.py, and what makes one unfit."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from functions.formats import constants
from functions.git import command, environment
from state.errors import Invalid, Unavailable

SCRIPT = constants.SCRIPT
_GIT_S = 10.0


def repository_head(repo: Path) -> str | None:
    """HEAD of the repository; None if it has no commit yet.

    Raises:
        Unavailable: git does not answer in time, e.g. because a network drive hangs.
    """
    try:
        done = subprocess.run(
            command(repo, "rev-parse", "--verify", "--quiet", "HEAD"),
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=_GIT_S,
        )
    except subprocess.TimeoutExpired as problem:
        raise Unavailable(
            f"git did not read the HEAD of {str(repo)!r} within {_GIT_S:.0f} s", hint="check its disk"
        ) from problem
    return done.stdout.strip() or None


def check_repository(repo: Path, command: Sequence[str] | str | None) -> None:
    """Check that runs can be started from this folder.

    Raises:
        Invalid: it is not a git repository, has no commit, or has no train.py and no command is given.
    """
    if not (repo / ".git").exists():
        raise Invalid(
            f"{repo} is not a git repository", hint="git init, commit train.py, or name another --repo"
        )
    if repository_head(repo) is None:
        raise Invalid(f"{repo} has no commit yet", hint="commit train.py first")
    if command is None and not (repo / SCRIPT).is_file():
        raise Invalid(
            f"{repo} has no {SCRIPT}", hint="name the train command with --command, or another --repo"
        )


def check_data_dir(data: Path, repo: Path, data_dirs: Sequence[Path] = ()) -> None:
    """Check that runs, which may read their project and data folders, do not read the lab's files with them.

    Raises:
        Invalid: the data directory lies in the repository or a data folder.
    """
    for what, folder in (("repository", repo), *(("--data-dir", folder) for folder in data_dirs)):
        if data.resolve().is_relative_to(folder.resolve()):
            raise Invalid(
                f"the data directory {data} lies in the {what} {folder}, which every run may read",
                hint="name another --data; by default it is below your state directory",
            )


def project_around(here: Path) -> Path | None:
    """The git repository around a folder, if it has a train.py."""
    for folder in (here, *here.parents):
        if (folder / ".git").exists():
            return folder if (folder / SCRIPT).is_file() else None
    return None
