"""A real git repository to train in."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from state.errors import NightjarError
from workers.attempt.job import TrainingJob
from workers.attempt.worktree import checkout

TRAIN = """DEPTH = 8
SEED = 1
print("---")
print(f"val_bpb: {DEPTH / 8}")
"""


def unwatched(script: str) -> str:
    """A script without the statement that looks at its constants when it ends."""
    bare, count = re.subn(
        r'; __import__\("runpy"\)\.run_path\([^()]*\)\["watch"\]\(globals\(\), \{[^{}]*\}\)', "", script
    )
    assert count == 1
    return bare


class Repository:
    """A clone with a commit; every method commits or asks with the git program."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")
        self.base = self.commit({"train.py": TRAIN, "prepare.py": "TRUSTED = True\n"})

    def git(self, *arguments: str) -> str:
        return self.git_bytes(*arguments).decode().strip()

    def git_bytes(self, *arguments: str) -> bytes:
        env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        identity = ("-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "commit.gpgsign=false")
        done = subprocess.run(
            ["git", *identity, *arguments], cwd=self.path, env=env, check=True, capture_output=True
        )
        return done.stdout

    def commit(self, files: dict[str, str | bytes]) -> str:
        for name, content in files.items():
            place = self.path / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content if isinstance(content, bytes) else content.encode())
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message=change")
        return self.git("rev-parse", "HEAD")

    def state(self) -> tuple[str, ...]:
        """Everything of the operator's that a checkout must not touch."""
        return (
            self.git("status", "--porcelain", "--ignored"),
            self.git("for-each-ref"),
            self.git("symbolic-ref", "HEAD"),
            self.git("worktree", "list"),
            self.git("stash", "list"),
            self.git("config", "--local", "--list"),
            self.git("count-objects", "-v"),
            str(sorted(str(path) for path in (self.path / ".git").rglob("*"))),
        )


def job(commit_sha: str, **fields: object) -> TrainingJob:
    known: dict[str, object] = {
        "experiment_id": "e-1",
        "attempt": 1,
        "fence": 1,
        "base_commit": None,
        "patch": None,
        "config_delta": None,
        "evaluator": "prepare.py",
        "budget_s": 300.0,
        "timeout_s": 60.0,
    }
    return TrainingJob(commit_sha=commit_sha, **(known | fields))  # type: ignore[arg-type]  # a table of fields


def names(folder: Path) -> list[str]:
    """The entries of a folder, if it is there."""
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


async def refused(
    repo: Repository,
    root: Path,
    asked: TrainingJob,
    kind: type[NightjarError],
    reason: str,
    links: Sequence[str] = (),
) -> NightjarError:
    """The error of a checkout that is not made, which leaves nothing."""
    with pytest.raises(kind, match=reason) as found:
        async with checkout(repo.path, asked, root, links=links):
            pass
    assert names(root) == []
    return found.value
