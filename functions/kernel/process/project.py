"""The project that a worker trains, a git repository with a train.py, and what makes one unfit."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

from functions.formats.train_command import SCRIPT
from functions.kernel.git import NAME_YOURSELF, command, environment, knows_user
from state.errors import Invalid, Unavailable
from state.program import PROGRAM

_GIT_S = 10.0


def repository_head(repo: Path) -> str | None:
    """HEAD of the repository; None: no commit yet. Raises Unavailable: git hangs, as on a network drive."""
    return git_says(repo, "rev-parse", "--verify", "--quiet", "HEAD").stdout.strip() or None


def check_repository(repo: Path, command: Sequence[str] | str | None) -> None:
    """Check that runs can be started from this folder.

    Raises:
        Invalid: it is no git repository or a folder of one, git does not read it, it has no commit, or it has no
            train.py and no command is given.
    """
    around = repository_around(repo)
    if around is None:
        raise Invalid(
            f"{repo} is not a git repository", hint="git init, commit train.py, or name another --repo"
        )
    if not _has_git(repo):
        raise Invalid(
            f"{repo} is a folder of the git repository {around}", hint=_words_for(around, repo, command)
        )
    if repository_head(repo) is None:
        raise _without_head(repo)
    if not command and not (repo / SCRIPT).is_file():
        raise Invalid(f"{repo} has no {SCRIPT} of its own", hint=_words_for(repo, repo, command))


def check_data_dir(data: Path, repo: Path, data_dirs: Sequence[Path] = ()) -> None:
    """Raise Invalid if the lab's files lie in the repository or a data folder, which runs may read."""
    for what, folder in (("repository", repo), *(("--data-dir", folder) for folder in data_dirs)):
        if data.resolve().is_relative_to(folder.resolve()):
            raise Invalid(
                f"the data directory {data} lies in the {what} {folder}, which every run may read",
                hint="name another --data; by default it is below your state directory",
            )


def project_around(here: Path, command: str | None = None) -> Path | None:
    """The git repository around a folder, if it has a train.py or a command is given."""
    around = repository_around(here)
    return around if around is not None and (command or (around / SCRIPT).is_file()) else None


def repository_around(here: Path) -> Path | None:
    """The git repository that a folder is, or lies in."""
    here = Path(os.path.abspath(here))
    return next((folder for folder in (here, *here.parents) if _has_git(folder)), None)


def no_project(here: Path) -> Invalid:
    """Why there is no project around a folder, and what helps."""
    around = repository_around(here)
    if around is not None:
        return Invalid(f"{around} has no {SCRIPT} of its own", hint=_words_for(around, here, None))
    if (here / SCRIPT).is_file():
        return Invalid(f"{here / SCRIPT} is in no git repository", hint=f"git init, and commit {SCRIPT}")
    return Invalid(f"this folder has no {SCRIPT}", hint=f"name a project with {PROGRAM} worker --repo PATH")


def _has_git(folder: Path) -> bool:
    return os.path.exists(folder / ".git")


def _words_for(repo: Path, here: Path, command: Sequence[str] | str | None) -> str:
    """The options that train from a repository: its train.py, else one in a folder of it, best the one in `here`."""
    chosen = f"--repo {shlex.quote(str(repo))}"
    if command or (repo / SCRIPT).is_file():
        return f"{chosen}, whose top folder runs start in"
    listed = git_says(repo, "ls-tree", "-r", "--name-only", "-z", "HEAD").stdout.split("\0")
    scripts = [name for name in listed if Path(name).name == SCRIPT]
    own = Path(os.path.abspath(here), SCRIPT)
    if own.is_file() and (found := str(own.relative_to(repo))) not in scripts:
        return f"commit {found} first"
    if not scripts:
        return "name the train command with --command, or another --repo"
    scripts.sort(key=lambda name: (repo / name != own, name.count("/"), name))
    first, *others = (shlex.quote(shlex.join(["python", name])) for name in scripts)
    others = [f" or --command {other}" for other in others[:2]]
    return f"{chosen} --command {first}{''.join(others)}"


def _without_head(repo: Path) -> Invalid:
    """Why git finds no commit."""
    done = git_says(repo, "rev-parse", "--git-dir")
    said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    if "dubious ownership" in done.stderr:
        return Invalid(
            f"{repo} belongs to another user, so git does not read it", hint=f"if you trust it: {said[-1]}"
        )
    if done.returncode:
        return Invalid(f"git does not read {repo}: {said[0]}", hint="mend it, or name another --repo")
    who = "" if knows_user(repo) else f"; git does not know who you are: {NAME_YOURSELF}"
    return Invalid(f"{repo} has no commit yet", hint=f"commit train.py first{who}")


def git_says(repo: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Output of git about a repository. Raises Unavailable: it does not answer in time, or there is no git."""
    try:
        return subprocess.run(
            command(repo, *arguments),
            env=environment(),
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_GIT_S,
        )
    except FileNotFoundError as problem:
        raise Unavailable("there is no git on this machine", hint="install git") from problem
    except subprocess.TimeoutExpired as problem:
        raise Unavailable(
            f"git did not read {str(repo)!r} within {_GIT_S:.0f} s", hint="check its disk"
        ) from problem
