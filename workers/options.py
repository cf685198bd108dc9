"""How an operator wants training to be run on this machine."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from state.errors import Invalid, Unavailable

_GIT_S = 10.0


class WorkerOptions(BaseModel):
    """The repository, command and limits of every run of a worker."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    repo: Path
    command: tuple[str, ...] | None = None
    python: Path | None = None
    tier: Literal["none", "limits"] = "limits"
    pass_env: tuple[str, ...] = ()


def repository_head(repo: Path) -> str | None:
    """HEAD of the repository; None where it has no commit yet.

    Raises:
        Unavailable: git does not answer, as on a network drive that hangs.
    """
    try:
        done = subprocess.run(
            ["git", "-C", str(repo), "rev-parse", "--verify", "--quiet", "HEAD"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_GIT_S,
        )
    except subprocess.TimeoutExpired as problem:
        raise Unavailable(
            f"git did not tell the HEAD of {str(repo)!r} within {_GIT_S:.0f} s", hint="is its drive well?"
        ) from problem
    return done.stdout.strip() or None


def check_repository(repo: Path, command: tuple[str, ...] | None) -> None:
    """Refuse a folder that cannot be trained from.

    Raises:
        Invalid: no git repository, no commit, or no train.py and no command.
    """
    if not (repo / ".git").exists():
        raise Invalid(
            f"{repo} is no git repository", hint="git init, commit train.py, or name another --repo"
        )
    if repository_head(repo) is None:
        raise Invalid(f"{repo} has no commit yet", hint="commit train.py first")
    if command is None and not (repo / "train.py").is_file():
        raise Invalid(
            f"{repo} has no train.py", hint="name the train command with --command, or another --repo"
        )


def boot_id() -> str | None:
    """What Linux calls this boot; None elsewhere."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
