"""Starts git without hooks, monitors, filters, prompts or fetches, and without any configuration.

A commit's `.gitattributes` names filters and drivers, and a configuration says which programs these are. So git reads
neither the user's configuration nor the system's. Workers use repositories of their own, which configure nothing.
The second part checks the project that a worker trains.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from functions.formats.train_command import SCRIPT
from state.errors import Invalid, Unavailable
from state.program import PROGRAM

_SETTINGS = (
    *("core.hooksPath=/dev/null", "core.fsmonitor=false", "core.attributesFile=/dev/null"),
    *("core.excludesFile=/dev/null", "core.autocrlf=false", "submodule.recurse=false"),
)
_PASSED = ("HOME", "PATH", "TMPDIR", "NIGHTJAR_OWN")
"""Variables of this process that git inherits. `NIGHTJAR_OWN` marks the processes of a worker."""
_TRUSTED = "safe.directory"
NAME_YOURSELF = "git config --global user.name NAME, and user.email ADDRESS"
"""Remedy if `knows_user` is false."""


def command(where: Path, *arguments: str) -> list[str]:
    """The command line of git in a folder. Run it with `environment`."""
    return ["git", "-C", str(where), *(part for setting in _SETTINGS for part in ("-c", setting)), *arguments]


def environment(**names: str) -> dict[str, str]:
    """The whole environment of a git process, with further names."""
    trusted = _trusted()
    return {
        **{name: os.environ[name] for name in _PASSED if name in os.environ},
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_CONFIG_COUNT": str(len(trusted)),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        **{f"GIT_CONFIG_KEY_{nth}": _TRUSTED for nth in range(len(trusted))},
        **{f"GIT_CONFIG_VALUE_{nth}": folder for nth, folder in enumerate(trusted)},
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
        **names,
    }


def knows_user(repo: Path) -> bool:
    """Whether a commit of this process' user has an author, by the user's own configuration."""
    asked = command(repo, "var", "GIT_COMMITTER_IDENT")
    return subprocess.run(asked, env=os.environ, capture_output=True, check=False).returncode == 0


def user_excludes() -> Path:
    """The file with the patterns that the user's own git ignores in every repository; it need not exist."""
    named = _of_user("--type=path", "--get", "core.excludesFile")
    config = os.environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser()
    return Path(named[0]) if named else Path(config, "git", "ignore")


@cache
def _trusted() -> list[str]:
    """The user's `safe.directory` entries, the only part of the user's configuration that every git keeps."""
    return _of_user("--get-all", _TRUSTED)


def _of_user(*asked: str) -> list[str]:
    """Values of the user's own configuration."""
    try:
        done = subprocess.run(
            ["git", "config", "--null", *asked],
            env=os.environ | {"GIT_DIR": os.devnull},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=False,
        )
    except OSError:  # git is not installed; the command that needs it fails with a reason
        return []
    return os.fsdecode(done.stdout).split("\0")[:-1]


# -- The project that a worker trains, a git repository with a train.py, and what makes one unfit.

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
