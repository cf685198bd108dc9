"""One module starts git, and no process of git hears anybody's configuration."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import functions.kernel.git
from functions.kernel.git import check_repository, command, environment, repository_head
from state.errors import Invalid
from tests.workers.repository import Repository

ROOT = Path(__file__).parents[3]


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repo")


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The user's own configuration of git."""
    monkeypatch.setenv("HOME", str(tmp_path))
    functions.kernel.git._trusted.cache_clear()
    yield tmp_path / ".gitconfig"
    functions.kernel.git._trusted.cache_clear()


def test_one_module_starts_git() -> None:
    starting = ('["git"', '("git"', "'git'")
    sources = (
        path
        for folder in ("functions", "state", "triggers", "workers")
        for path in (ROOT / folder).rglob("*.py")
    )
    found = {
        str(path.relative_to(ROOT)) for path in sources if any(word in path.read_text() for word in starting)
    }

    assert found == {"functions/kernel/git.py", "triggers/cli/doctor.py"}, (
        "doctor only looks whether it is there"
    )


def test_git_hears_neither_its_user_nor_the_variables_of_this_process(
    repo: Repository, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text("[user]\n\tname = theirs\n")
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("NIGHTJAR_TOKEN", "nj_secret")

    told = subprocess.run(
        command(repo.path, "config", "--list"), env=environment(), capture_output=True, text=True, check=True
    ).stdout

    assert "core.hookspath=/dev/null" in told
    assert "user.name" not in told
    assert "NIGHTJAR_TOKEN" not in environment()


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives a file to another user")
@pytest.mark.parametrize("is_trusted", [True, False])
def test_a_repository_of_another_user_is_read_where_its_user_trusts_it(
    repo: Repository, config: Path, is_trusted: bool
) -> None:
    config.write_text(f"[safe]\n\tdirectory = {repo.path if is_trusted else '/elsewhere'}\n")
    for place in (repo.path, *repo.path.rglob("*")):
        os.chown(place, 12345, 12345)

    assert repository_head(repo.path) == (repo.base if is_trusted else None)
    if is_trusted:
        check_repository(repo.path, None)
        return
    with pytest.raises(Invalid, match="belongs to another user, so git does not read it") as refused:
        check_repository(repo.path, None)
    assert refused.value.hint == f"if you trust it: git config --global --add safe.directory {repo.path}"
